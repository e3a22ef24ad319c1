//! Names, as the interpreter asks for them.

use std::sync::{Arc, OnceLock};

use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;

use super::super::scope::Scope;
use super::budget::Budget;
use super::names::Place;
use super::values;

/// What a name means; none where the run has nothing of that name.
type Converted<'s> = Option<Box<dyn Val + 's>>;

/// Answers for the names that a compiled expression has. What a name means is converted once for an evaluation, and text
/// is not copied.
pub(super) struct Resolver<'s> {
    places: &'s [Place],
    scope: &'s Scope,
    budget: &'s Arc<Budget>,
    found: Box<[OnceLock<Converted<'s>>]>,
}

impl<'s> Resolver<'s> {
    /// `places` are sorted by their names.
    pub(super) fn new(places: &'s [Place], scope: &'s Scope, budget: &'s Arc<Budget>) -> Self {
        Self { places, scope, budget, found: places.iter().map(|_| OnceLock::new()).collect() }
    }

    fn convert(&self, place: &Place) -> Option<Box<dyn Val + 's>> {
        let json = place.find(self.scope).ok()?;
        // Nothing is made once the budget is spent; the evaluation fails for that, whatever it comes to.
        self.budget.spend(values::cost(json, self.budget.left())).ok()?;
        Some(values::from_json(json))
    }
}

impl VariableResolver for Resolver<'_> {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        let at = self.places.binary_search_by(|place| (*place.name).cmp(variable)).ok()?;
        let found = self.found.get(at)?.get_or_init(|| self.convert(&self.places[at]));
        let value: &'b dyn Val = found.as_deref()?;
        Some(CowVal::Borrowed(value))
    }
}
