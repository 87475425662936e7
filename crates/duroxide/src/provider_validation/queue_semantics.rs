//! Order, visibility and exactly-once removal in both queues.
