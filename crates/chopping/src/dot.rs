//! A chopping's graph in Graphviz's language.

use crate::chopping::{Chopping, Execution};

impl Chopping {
    /// Returns the graph for Graphviz: two instances of each transaction that runs in pieces,
    /// S-edges as lines, C-edges dashed, with the tables of the conflict.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_chopping::{Chopping, Options, Program, programs};
    ///
    /// let program = Program::parse(programs::SMALLBANK)?;
    /// let dot = Chopping::finest(&program, Options::ALL).to_dot();
    /// assert!(dot.starts_with("graph chopping {") && dot.contains("amalgamate #2"));
    /// # Ok::<(), drtm_chopping::TextError>(())
    /// ```
    #[must_use]
    pub fn to_dot(&self) -> String {
        let mut dot = "graph chopping {\n  node [shape=box, fontname=\"sans-serif\"];\n".to_owned();
        let instances = |transaction: usize| if self.program().transactions[transaction].alone { 1 } else { 2 };
        for (transaction, chopped) in self.transactions().iter().enumerate() {
            if chopped.execution() != Execution::Pieces {
                continue;
            }
            for instance in 1..=instances(transaction) {
                let number = if instance == 1 { "" } else { " #2" };
                let label = quoted(&format!("{}{number}", chopped.name()));
                line(&mut dot, &format!("  subgraph cluster_{transaction}_{instance} {{ label={label};"));
                for (place, piece) in chopped.pieces().iter().enumerate() {
                    let names: Vec<_> =
                        piece.members().iter().map(|&member| self.program().piece_name(member)).collect();
                    let label = quoted(&names.join("\n"));
                    line(&mut dot, &format!("    t{transaction}_{instance}_{place} [label={label}];"));
                }
                for place in 1..chopped.pieces().len() {
                    let before = place - 1;
                    let edge = format!("    t{transaction}_{instance}_{before} -- t{transaction}_{instance}_{place};");
                    line(&mut dot, &edge);
                }
                line(&mut dot, "  }");
            }
        }
        for joint in self.links() {
            let names: Vec<_> = joint.tables.iter().map(|&table| self.program().tables[table].name.as_str()).collect();
            let label = quoted(&names.join(", "));
            let ((from, piece), (to, other)) = (joint.from, joint.to);
            for one in 1..=instances(from) {
                for two in 1..=instances(to) {
                    // A piece conflicts with another instance's, once.
                    if from == to && (one == two || (piece == other && one > two)) {
                        continue;
                    }
                    let ends = format!("t{from}_{one}_{piece} -- t{to}_{two}_{other}");
                    line(&mut dot, &format!("  {ends} [style=dashed, constraint=false, label={label}];"));
                }
            }
        }
        dot.push_str("}\n");
        dot
    }
}

fn line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
