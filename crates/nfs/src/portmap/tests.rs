//! The port mapper as clients meet it, byte for byte.
