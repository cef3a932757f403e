//! An order that was published, beside ours.

use super::{Drawing, WIDTH, pen::Pen};

/// An order of names. Lines between the two sides cross where these differ.
#[derive(Debug)]
pub struct Ranks {
    /// The title.
    pub title: String,
    /// The published order, best first. Names of a group are equals.
    pub published: Vec<Vec<String>>,
    /// Our order, best first, and what stands beside each name.
    pub ours: Vec<(String, String)>,
}

const TOP: f64 = 24.0;
const STEP: f64 = 24.0;
/// Where lines begin and end.
const LEFT: f64 = 120.0;
const RIGHT: f64 = 235.0;

impl Ranks {
    /// Draws both orders, best on top.
    #[must_use]
    pub fn draw(&self) -> Drawing {
        let place = |name: &str| self.ours.iter().position(|(own, _)| own == name);
        // Equals stand as they do in our order: their lines do not cross.
        let groups = self.published.iter().enumerate().map(|(rank, group)| {
            let mut names: Vec<_> = group.iter().map(|name| (rank, name, place(name))).collect();
            names.sort_by_key(|(_, _, place)| *place);
            names
        });
        let names: Vec<_> = groups.flatten().collect();
        let at = |row: usize| TOP + STEP * (row as f64 + 0.5);
        let mut pen = Pen::default();
        pen.text((LEFT - 8.0, 12.0), "end", "published");
        pen.text((RIGHT + 8.0, 12.0), "strong", "ours");
        for (row, &(rank, name, place)) in names.iter().enumerate() {
            pen.text((LEFT - 8.0, at(row) + 4.0), "end", &format!("{}  {name}", rank + 1));
            if let Some(place) = place {
                let crosses = names.iter().any(|&(other_rank, _, other)| {
                    other.is_some_and(|other| {
                        (other_rank < rank && other > place) || (other_rank > rank && other < place)
                    })
                });
                pen.line((LEFT, at(row)), (RIGHT, at(place)), if crosses { "wrong" } else { "right" });
            }
        }
        for (row, (name, value)) in self.ours.iter().enumerate() {
            pen.text((RIGHT + 8.0, at(row) + 4.0), "", name);
            pen.text((WIDTH - 2.0, at(row) + 4.0), "faint end", value);
        }
        let rows = names.len().max(self.ours.len());
        Drawing { title: self.title.clone(), caption: String::new(), height: at(rows), body: pen.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_reversed_pairs_are_told_apart_and_equals_do_not_cross() {
        let group = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let published = vec![group(&["a"]), group(&["b", "c"]), group(&["d"])];
        let drawn = |order: [&str; 4]| {
            let ours = order.map(|name| (name.to_owned(), "1".to_owned())).into();
            Ranks { title: "t".to_owned(), published: published.clone(), ours }.draw().element()
        };
        let wrong = |svg: String| (svg.matches("\"wrong\"").count(), svg.matches("\"right\"").count());
        assert_eq!(wrong(drawn(["a", "c", "b", "d"])), (0, 4));
        assert_eq!(wrong(drawn(["a", "b", "d", "c"])), (2, 2));
    }
}
