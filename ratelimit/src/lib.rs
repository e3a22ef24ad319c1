//! Local limits, budgets and bounds that survive a reload
