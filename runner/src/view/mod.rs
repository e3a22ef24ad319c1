//! A run as people and programs see it: one form, made of its records.
//!
//! [`execution`] makes it, [`text`] draws it for a terminal, and [`line`] and [`group`] are what lists are made of. Nothing
//! is without a bound, and what is left out is said: nodes, attempts, payloads. Secrets were taken out where records were
//! written; what others wrote is escaped where it is drawn.

mod build;
mod form;
mod list;
mod payload;
mod plan;
mod sentence;
mod status;
mod steps;
#[cfg(test)]
mod tests;
mod text;
mod text_of;

pub use build::{Connectors, Known, Limits, Part, execution, payload as payload_of};
pub use form::{
    AttemptView, By, CauseView, ChoiceView, DismissedView, ExecutionView, GroupView, LineView, NextAct, NodeOfRun,
    NodeView, ParkView, QuarantineView, json,
};
pub use list::{group, line, of_row};
pub use payload::PayloadView;
pub use plan::{Plan, PlanNode};
pub use status::NodeStatus;
pub use text::{draw, draw_for, draw_node, lines};
