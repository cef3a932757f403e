//! Names of option values on the command line.

use clap::ValueEnum;

/// Returns the name of an option's value, or an empty string if the command line does not offer it.
pub fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
