-- How many instances are listed as cancelled: no other total tells them from those that failed.
ALTER TABLE totals ADD COLUMN cancelled_instances INTEGER NOT NULL DEFAULT 0;
UPDATE totals SET cancelled_instances = (SELECT count(*) FROM instances WHERE listed_status = 'Cancelled');
