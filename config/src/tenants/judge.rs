//! Who judges a tenant that was read, and what is kept of the verdict.
//!
//! Each role judges for itself, and none knows of another: the gateway compiles endpoints, the way out compiles rules.
//! [`both`] puts two judges behind each other, so that one file is good or faulty as a whole.

use std::fmt;
use std::sync::Arc;

use crate::fault::Fault;
use crate::tenant::Tenant;

/// What a later stage makes of a tenant that was read, and says about it: unknown schemes, keys that cannot be decoded,
/// known answers that fail. An error among its faults makes the file faulty, and so does nothing.
///
/// It is also given what could be read of a faulty file, so that everything is said at once. What it makes of that is
/// dropped, and so is what it says of keys that were misread: they have stand-ins.
pub type Judge<'j, M> = dyn FnMut(Tenant) -> (Option<M>, Vec<Fault>) + 'j;

/// A judge beside the one that takes the tenant. It makes nothing of most tenants, and that is no fault; an error among its
/// faults makes the file faulty.
pub type Second<'j, B> = dyn FnMut(&Tenant) -> (Option<Arc<B>>, Vec<Fault>) + 'j;

/// What a judge made of a tenant: that is what is kept, and it has the tenant inside.
pub trait Judged {
    fn tenant(&self) -> &Tenant;
}

/// Nothing is made of it: it is as it was read.
impl Judged for Tenant {
    fn tenant(&self) -> &Tenant {
        self
    }
}

/// What is in force of a tenant: pointers to what judges made of it.
pub trait InForce: Clone {
    fn tenant(&self) -> &Tenant;
    /// Whether it is the very same, and not only equal.
    fn is(&self, other: &Self) -> bool;
}

impl<T: Judged> InForce for Arc<T> {
    fn tenant(&self) -> &Tenant {
        (**self).tenant()
    }

    fn is(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other)
    }
}

/// What two judges made of one tenant.
pub struct Both<A, B> {
    pub made: Arc<A>,
    /// None for tenants that have nothing of that kind: it costs them one pointer.
    pub beside: Option<Arc<B>>,
}

impl<A: Judged, B> InForce for Both<A, B> {
    fn tenant(&self) -> &Tenant {
        self.made.tenant()
    }

    fn is(&self, other: &Self) -> bool {
        // They are made at one time.
        Arc::ptr_eq(&self.made, &other.made)
    }
}

impl<A, B> Clone for Both<A, B> {
    fn clone(&self) -> Self {
        Self { made: Arc::clone(&self.made), beside: self.beside.clone() }
    }
}

impl<A: fmt::Debug, B: fmt::Debug> fmt::Debug for Both<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Both").field("made", &self.made).field("beside", &self.beside).finish()
    }
}

/// One judge out of two. Both look at every tenant, so that everything is said at once.
pub fn both<'a, A, B>(
    first: &'a mut Judge<'_, A>,
    second: &'a mut Second<'_, B>,
) -> impl FnMut(Tenant) -> (Option<Both<A, B>>, Vec<Fault>) + 'a {
    move |tenant| {
        let (beside, more) = second(&tenant);
        let (made, mut faults) = first(tenant);
        faults.extend(more);
        (made.map(|made| Both { made: Arc::new(made), beside }), faults)
    }
}
