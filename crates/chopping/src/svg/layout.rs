//! Where everything is.

use crate::chopping::{Chopped, Chopping, Execution};

/// What a tile or a text stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Name,
    Note,
    Plain,
    Piece,
    Conflicting,
    Deferred,
    Whole,
}

impl Style {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Note => "note",
            Self::Plain => "plain",
            Self::Piece => "piece",
            Self::Conflicting => "conflicting",
            Self::Deferred => "deferred",
            Self::Whole => "whole",
        }
    }
}

/// A line of text.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) text: String,
    pub(super) style: Style,
}

/// A merged piece.
#[derive(Debug)]
pub(super) struct Tile {
    /// The place of its transaction, and its own place there.
    at: (usize, usize),
    pub(super) x: i32,
    pub(super) y: i32,
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) style: Style,
    pub(super) rows: Vec<Row>,
}

/// A conflict, or what is deferred between two pieces.
#[derive(Debug)]
pub(super) struct Line {
    /// The right side of all tiles.
    pub(super) x: i32,
    pub(super) from: i32,
    /// The height of the other end, which is lower, or `None` if a piece conflicts with itself.
    pub(super) to: Option<i32>,
    /// Where the vertical part of a bracket is.
    pub(super) track: i32,
    pub(super) label: String,
    pub(super) style: Style,
}

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) width: i32,
    pub(super) height: i32,
    pub(super) rows: Vec<Row>,
    pub(super) tiles: Vec<Tile>,
    /// S-edges: where they are, and from which height to which.
    pub(super) siblings: Vec<(i32, i32, i32)>,
    pub(super) lines: Vec<Line>,
}

/// An edge between two tiles, the upper one first, or of one tile with itself.
struct Tie {
    upper: usize,
    lower: usize,
    label: String,
    style: Style,
}

const MARGIN: i32 = 24;
const ROW: i32 = 17;
/// Between the ends of two lines on one tile.
const PORT: i32 = 20;
/// Between two vertical lines.
const TRACK: i32 = 14;
/// Between two pieces of one transaction.
const GAP: i32 = 14;

/// Returns how wide a text is, at most, in a font in which all letters are as wide.
fn width(text: &str, letter: f64) -> i32 {
    (text.chars().count() as f64 * letter).ceil() as i32
}

impl Layout {
    pub(super) fn new(chopping: &Chopping) -> Self {
        let tiles = tiles(chopping);
        let ties = ties(chopping, &tiles);
        let mut layout =
            Self { width: 0, height: MARGIN, rows: Vec::new(), tiles, siblings: Vec::new(), lines: Vec::new() };
        layout.stack(chopping, &ties);
        layout.connect(&ties);
        layout.explain();
        layout
    }

    /// Gives the tiles their places, below the names of their transactions.
    fn stack(&mut self, chopping: &Chopping, ties: &[Tie]) {
        let widest = self.tiles.iter().flat_map(|one| &one.rows).map(|row| width(&row.text, 7.3)).max();
        let mut y = MARGIN;
        for (place, one) in self.tiles.iter_mut().enumerate() {
            if one.at.1 == 0 {
                let chopped = &chopping.transactions()[one.at.0];
                y += if one.at.0 == 0 { 0 } else { MARGIN };
                let name = chopped.name().to_owned();
                let beside = MARGIN + width(&name, 8.5) + 14;
                self.rows.push(Row { x: MARGIN, y: y + 4, text: name, style: Style::Name });
                self.rows.push(Row { x: beside, y: y + 4, text: note(chopped), style: Style::Note });
                y += 16;
            } else {
                self.siblings.push((MARGIN + 20, y, y + GAP));
                y += GAP;
            }
            let ends = ties.iter().filter(|tie| [tie.upper, tie.lower].contains(&place)).count() as i32;
            let rows = one.rows.len() as i32;
            one.height = (rows * ROW + 12).max(ends * PORT + 6);
            (one.x, one.y, one.width) = (MARGIN, y, widest.unwrap_or(0) + 24);
            let first = y + (one.height - rows * ROW) / 2 + 13;
            for (nth, row) in one.rows.iter_mut().enumerate() {
                (row.x, row.y) = (MARGIN + 12, first + nth as i32 * ROW);
            }
            y += one.height;
        }
        self.height = y + MARGIN;
    }

    /// Gives the lines their places, so that few cross.
    fn connect(&mut self, ties: &[Tie]) {
        // The ends on a tile from the top: lines upward, the nearest first, its own, and lines
        // downward, the farthest first.
        let ports: Vec<Vec<usize>> = (0..self.tiles.len())
            .map(|place| {
                let mut own: Vec<usize> =
                    (0..ties.len()).filter(|&tie| [ties[tie].upper, ties[tie].lower].contains(&place)).collect();
                own.sort_by_key(|&tie| match (ties[tie].upper, ties[tie].lower) {
                    (upper, lower) if upper == lower => (1, 0),
                    (upper, lower) if lower == place => (0, place - upper),
                    (_, lower) => (2, usize::MAX - lower),
                });
                own
            })
            .collect();
        let port = |place: usize, tie: usize| {
            let one = &self.tiles[place];
            let nth = ports[place].iter().position(|&other| other == tie).unwrap_or(0) as i32;
            one.y + one.height / 2 + (2 * nth + 1 - ports[place].len() as i32) * PORT / 2
        };
        let right = self.tiles.first().map_or(MARGIN, |one| one.x + one.width);
        let labels = ties.iter().map(|tie| width(&tie.label, 6.7)).max().unwrap_or(0);
        let first_track = right + labels + 34;
        // Short lines are inside of long ones.
        let mut order: Vec<usize> = (0..ties.len()).filter(|&tie| ties[tie].upper != ties[tie].lower).collect();
        order.sort_by_key(|&tie| port(ties[tie].lower, tie) - port(ties[tie].upper, tie));
        let mut tracks: Vec<Vec<(i32, i32)>> = Vec::new();
        let mut lines = Vec::new();
        for tie in order {
            let (from, to) = (port(ties[tie].upper, tie), port(ties[tie].lower, tie));
            let is_free = |taken: &Vec<(i32, i32)>| taken.iter().all(|&(start, end)| to + 4 < start || end + 4 < from);
            let track = tracks.iter().position(is_free).unwrap_or_else(|| {
                tracks.push(Vec::new());
                tracks.len() - 1
            });
            tracks[track].push((from, to));
            lines.push((tie, from, Some(to), first_track + track as i32 * TRACK));
        }
        let own = (0..ties.len()).filter(|&tie| ties[tie].upper == ties[tie].lower);
        lines.extend(own.map(|tie| (tie, port(ties[tie].upper, tie), None, first_track)));
        self.lines = lines
            .into_iter()
            .map(|(tie, from, to, track)| Line {
                x: right,
                from,
                to,
                track,
                label: ties[tie].label.clone(),
                style: ties[tie].style,
            })
            .collect();
        let notes = self.rows.iter().map(|row| row.x + width(&row.text, 7.3)).max().unwrap_or(0);
        self.width = (first_track + tracks.len() as i32 * TRACK).max(notes) + MARGIN;
    }

    /// Says what the colours mean.
    fn explain(&mut self) {
        let mut lines = vec!["orange: conflicts (C-edges), with their tables; a loop: with another instance of itself"];
        if self.tiles.iter().any(|one| one.style == Style::Deferred) {
            lines.push("green: additions that are deferred until a publication");
        }
        if self.tiles.iter().any(|one| one.style == Style::Whole) {
            lines.push("blue: read as a whole, at one moment");
        }
        for text in lines {
            self.width = self.width.max(2 * MARGIN + width(text, 7.3));
            self.rows.push(Row { x: MARGIN, y: self.height, text: text.to_owned(), style: Style::Note });
            self.height += ROW;
        }
        self.height += MARGIN / 2;
    }
}

/// Says how a transaction runs.
fn note(chopped: &Chopped) -> String {
    match chopped.execution() {
        Execution::Pieces if chopped.pieces().len() == 1 => "whole".to_owned(),
        Execution::Pieces => format!("{} pieces", chopped.pieces().len()),
        Execution::TwoRounds { after_publication: false } => "two rounds".to_owned(),
        Execution::TwoRounds { after_publication: true } => "two rounds, after a publication".to_owned(),
    }
}

/// Returns a tile for each merged piece, without its place.
fn tiles(chopping: &Chopping) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for (transaction, chopped) in chopping.transactions().iter().enumerate() {
        for (place, piece) in chopped.pieces().iter().enumerate() {
            let is_deferred = |member: &crate::PieceId| chopping.is_deferred(*member);
            let style = match chopped.execution() {
                Execution::TwoRounds { .. } => Style::Whole,
                Execution::Pieces if piece.conflicts() => Style::Conflicting,
                Execution::Pieces if piece.members().iter().any(is_deferred) => Style::Deferred,
                Execution::Pieces => Style::Piece,
            };
            let row = |&member: &crate::PieceId| {
                let may_abort = if chopping.program().at(member).may_abort { " (may abort)" } else { "" };
                let program = chopping.program();
                let text = format!("{}{may_abort}: {}", program.piece_name(member), program.operations(member));
                Row { x: 0, y: 0, text, style: Style::Plain }
            };
            let rows = piece.members().iter().map(row).collect();
            tiles.push(Tile { at: (transaction, place), x: 0, y: 0, width: 0, height: 0, style, rows });
        }
    }
    tiles
}

/// Returns the edges: conflicts, and what is deferred.
fn ties(chopping: &Chopping, tiles: &[Tile]) -> Vec<Tie> {
    let place = |at: (usize, usize)| tiles.iter().position(|one| one.at == at);
    let mut ties = Vec::new();
    let mut tie = |one: (usize, usize), other: (usize, usize), label: String, style| {
        if let (Some(one), Some(other)) = (place(one), place(other)) {
            ties.push(Tie { upper: one.min(other), lower: one.max(other), label, style });
        }
    };
    for joint in chopping.links() {
        let names: Vec<_> = joint.tables.iter().map(|&table| chopping.program().tables[table].name.as_str()).collect();
        tie(joint.from, joint.to, names.join(", "), Style::Conflicting);
    }
    for deferral in chopping.deferrals() {
        let pieces = |transaction: usize| {
            let touches = move |piece: &crate::Merged| {
                piece.members().iter().any(|&member| deferral.concerns(chopping.program(), member))
            };
            let all = chopping.transactions()[transaction].pieces().iter().enumerate();
            all.filter(move |(_, piece)| touches(piece)).map(move |(place, _)| (transaction, place))
        };
        for from in pieces(deferral.publisher) {
            for &subscriber in &deferral.subscribers {
                for to in pieces(subscriber) {
                    tie(from, to, deferral.column.clone(), Style::Deferred);
                }
            }
        }
    }
    ties
}
