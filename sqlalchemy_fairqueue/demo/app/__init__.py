"""The app: what a customer's upload is, what comes of it, and two ways to line uploads up for the workers."""
