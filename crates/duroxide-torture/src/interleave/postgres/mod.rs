//! What the copy of the PostgreSQL store's waiting dispatchers takes from that store.

pub mod fetch;
pub mod scenario;

pub mod waiting_dispatchers {
    include!(concat!(env!("OUT_DIR"), "/waiting_dispatchers.rs"));
}

pub mod shared_connection {
    use std::future::Future;
    use std::time::Duration;

    use crate::interleave::sync::a_while;

    /// Waits, but not for ever: the time may be over at any moment.
    pub async fn within<T>(_: Duration, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            value = future => Some(value),
            () = a_while() => None,
        }
    }
}
