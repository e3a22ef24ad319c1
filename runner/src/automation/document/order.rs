//! An order in which every node comes behind those that it waits for, and what is before each.

/// Which nodes are before a node, by their places in the document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Before(Vec<u64>);

impl Before {
    fn of(nodes: usize) -> Self {
        Self(vec![0; nodes.div_ceil(64)])
    }

    fn add(&mut self, node: usize) {
        if let Some(word) = self.0.get_mut(node / 64) {
            *word |= 1 << (node % 64);
        }
    }

    fn add_all(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    pub(super) fn contains(&self, node: usize) -> bool {
        self.0.get(node / 64).is_some_and(|word| word & (1 << (node % 64)) != 0)
    }
}

/// The order (the document's own wherever that is one), and by node what is before it. Else a circle of nodes that wait for
/// each other, beginning with its first in the document.
pub(super) fn order(after: &[Vec<usize>]) -> Result<(Vec<usize>, Vec<Before>), Vec<usize>> {
    let nodes = after.len();
    let mut before = vec![Before::of(nodes); nodes];
    let mut done = vec![false; nodes];
    let mut order = Vec::with_capacity(nodes);
    // At most 200 nodes: looking for the first that is ready each time is quick enough.
    while let Some(ready) = (0..nodes).find(|node| !done[*node] && after[*node].iter().all(|waits| done[*waits])) {
        let mut all = Before::of(nodes);
        for waits in &after[ready] {
            all.add(*waits);
            all.add_all(&before[*waits]);
        }
        before[ready] = all;
        done[ready] = true;
        order.push(ready);
    }
    match (0..nodes).find(|node| !done[*node]) {
        None => Ok((order, before)),
        Some(stuck) => Err(circle(after, &done, stuck)),
    }
}

/// Follows what is not done until a node comes again: every such node waits for another such.
fn circle(after: &[Vec<usize>], done: &[bool], stuck: usize) -> Vec<usize> {
    let mut way = vec![stuck];
    let mut at = stuck;
    while let Some(next) = after[at].iter().copied().find(|waits| !done[*waits]) {
        if let Some(began) = way.iter().position(|node| *node == next) {
            let mut circle = way.split_off(began);
            circle.reverse();
            let first = circle.iter().enumerate().min_by_key(|(_, node)| **node).map_or(0, |(at, _)| at);
            circle.rotate_left(first);
            return circle;
        }
        way.push(next);
        at = next;
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_circle_is_named_from_its_first_on() {
        assert_eq!(order(&[vec![], vec![3], vec![1], vec![2]]), Err(vec![1, 2, 3]));
        assert_eq!(order(&[vec![0]]), Err(vec![0]));
        // What only waits for a circle is none of it.
        assert_eq!(order(&[vec![1], vec![2], vec![1]]), Err(vec![1, 2]));
    }

    proptest! {
        #[test]
        fn each_comes_behind_what_it_waits_for(edges in prop::collection::vec((0_usize..70, 0_usize..70), 0..200)) {
            let mut after = vec![Vec::new(); 70];
            for (a, b) in edges {
                after[a].push(b);
            }
            match order(&after) {
                Ok((order, before)) => {
                    prop_assert_eq!(order.len(), 70);
                    let place = |node: usize| order.iter().position(|at| *at == node).unwrap();
                    for node in 0..70 {
                        for waits in &after[node] {
                            prop_assert!(place(*waits) < place(node));
                            prop_assert!(before[node].contains(*waits));
                        }
                        prop_assert!((0..70).filter(|other| before[node].contains(*other)).all(|other| place(other) < place(node)));
                    }
                }
                Err(circle) => {
                    for (at, node) in circle.iter().enumerate() {
                        let next = circle[(at + 1) % circle.len()];
                        prop_assert!(after[next].contains(node), "{circle:?}");
                    }
                }
            }
        }
    }
}
