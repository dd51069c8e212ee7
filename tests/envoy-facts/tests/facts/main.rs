//! One test for each fact, named after it. `docs/envoy-facts.md` tells what the product does because of it.
//!
//! The path of Envoy comes in the variable `ENVOY_BIN`; without it these tests say that they are skipped.

mod clusters;
mod document;
mod endpoints;
mod in_flight;
mod listeners;
mod product;
mod refusals;
mod secrets;
mod streams;
