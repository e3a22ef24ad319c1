mod answers;
mod reuse;
mod states;
mod upgrade;
