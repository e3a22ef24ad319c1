mod calls;
mod connections;
mod harness;
mod ssrf;
