"""Values that calls take and give: policies, messages to enqueue, receipts, deliveries, stats, dead letters.

They know nothing of sessions or SQL.
"""
