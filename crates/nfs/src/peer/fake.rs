//! Clients for tests: they answer as they are told, and remember what they were asked.
