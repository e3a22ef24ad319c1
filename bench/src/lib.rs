//! Load generators and side-by-side comparisons with peers
