mod answers;
mod http2;
mod reuse;
mod states;
mod upgrade;
