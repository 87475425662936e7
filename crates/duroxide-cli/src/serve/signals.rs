//! The signals by which a process is told to stop.

/// Ctrl-C and SIGTERM, from the moment that this is made.
#[cfg(unix)]
pub struct StopSignals {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl StopSignals {
    /// Begins to listen. A signal that cannot be heard ends the process as ever.
    pub fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self {
            interrupt: signal(SignalKind::interrupt()).ok(),
            terminate: signal(SignalKind::terminate()).ok(),
        }
    }

    /// Waits for one of them.
    pub async fn told(self) {
        tokio::select! {
            () = heard(self.interrupt) => {}
            () = heard(self.terminate) => {}
        }
    }
}

#[cfg(unix)]
async fn heard(signal: Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(mut signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
pub struct StopSignals;

#[cfg(not(unix))]
impl StopSignals {
    /// Begins to listen when it is asked.
    pub fn listen() -> Self {
        Self
    }

    /// Waits for it.
    pub async fn told(self) {
        // If it cannot be awaited, the process ends by it.
        let _ = tokio::signal::ctrl_c().await;
    }
}
