//! The service's own metrics and their labels.
