//! The document of the API, kept by hand and held to the routes and to real answers by tests.

/// `OpenAPI` 3.1, as JSON.
pub const OPENAPI: &str = include_str!("openapi.json");
