//! Cancelling an activity is taking its row away.
