//! One instance, one holder.
