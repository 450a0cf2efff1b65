//! Placeholder for the first commit.
