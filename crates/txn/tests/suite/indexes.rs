//! Secondary indexes, which every write of a row maintains, and entries for writing rows.

mod build;
mod entries;
mod model;
mod pages;
mod stress;
