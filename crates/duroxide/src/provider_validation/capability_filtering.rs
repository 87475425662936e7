//! Executions that a dispatcher cannot replay stay out of its way.
