//! Races recorded in a history replay to the same decision, on a real runtime.
