-- What a business transaction writes when it is measured with and without an enqueue.
create table business (
  id bigint generated always as identity primary key,
  payload text not null
);
