//! A device that accepts everything and computes nothing.
