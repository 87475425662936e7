//! Attempts are counted per message.
