//! Instances come into being with the first ack, not with the enqueue.
