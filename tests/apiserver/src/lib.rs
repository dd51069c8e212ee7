//! Leadership on a real API server.
