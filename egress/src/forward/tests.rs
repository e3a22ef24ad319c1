mod answers;
mod harness;
mod reuse;
mod states;
mod upgrade;
