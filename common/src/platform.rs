//! Platforms: short names for kinds of hardware, used in policies and steps. Each GPU model maps to a platform derived
//! from its name, so unknown models get one too; the slices of each profile are a platform of their own. Platforms declared by admins are in `platform/spec.rs`, the ranges in
//! them in `platform/range.rs`.

pub mod range;
pub mod spec;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::id::{NameError, PlatformName};
use crate::inventory::Gpu;

/// Longest platform name, in bytes.
const MAX_SLUG_BYTES: usize = 63;

/// Request for any hardware.
pub const ANY: &str = "any";

/// The platform of hosts without GPUs.
pub const CPU: &str = "cpu";

/// Platform of GPUs whose model is unknown.
pub const GENERIC_GPU: &str = "gpu";

/// Parses a comma-separated list of platforms, most preferred first. Returns an empty list if it contains `any`.
///
/// # Errors
/// The first word that is not a platform name.
pub fn parse_platforms(text: &str) -> Result<Vec<PlatformName>, NameError> {
    let mut names: Vec<PlatformName> = Vec::new();
    for word in text.split(',').map(str::trim) {
        // Vendors write models in capitals; platform names are lower case.
        let word = word.to_ascii_lowercase();
        let name = PlatformName::new(&*word)?;
        if word == ANY {
            return Ok(Vec::new());
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Platform for a slug; [`GENERIC_GPU`] if the slug is not a valid name.
pub fn from_slug(slug: &str) -> PlatformName {
    let name = PlatformName::new(slug);
    name.unwrap_or_else(|_| named(GENERIC_GPU))
}

/// The platform of hosts without GPUs.
pub fn cpu() -> PlatformName {
    named(CPU)
}

fn named(text: &str) -> PlatformName {
    PlatformName::new(text).expect("it follows the rule for names")
}

/// The platform of a GPU by itself: its model, and for a slice the profile too, such as `h100-3g.40gb`.
pub fn of_gpu(gpu: &Gpu) -> PlatformName {
    match &gpu.mig {
        None => from_slug(&gpu.platform),
        Some(mig) => of_slice(&from_slug(&gpu.platform), &mig.profile),
    }
}

/// The platform of the slices of a profile on GPUs of a platform.
pub fn of_slice(whole: &PlatformName, profile: &str) -> PlatformName {
    let name = format!("{whole}-{}", profile.replace('+', "-"));
    PlatformName::new(name).unwrap_or_else(|_| whole.clone())
}

/// The platforms that these mean in a request for slices of a profile: the slices of each model, too.
pub fn of_slices_too(asked: Vec<PlatformName>, profile: &str) -> Vec<PlatformName> {
    let each = asked.into_iter().flat_map(|name| {
        let is_whole = !name.as_str().ends_with(profile);
        let slices = is_whole.then(|| of_slice(&name, profile));
        [Some(name), slices].into_iter().flatten()
    });
    each.collect()
}

/// Words of a model name that are ignored.
const VENDOR: [&str; 4] = ["nvidia", "tesla", "geforce", "grid"];

/// Derives the platform of a GPU model as NVML names it: `NVIDIA A100-SXM4-80GB` is `a100`, `NVIDIA H100 80GB HBM3` is
/// `h100`, `NVIDIA L40S` is `l40s`, `NVIDIA GeForce RTX 4090` is `rtx-4090`, `Quadro RTX 6000` is `quadro-rtx-6000`.
///
/// A slice of a GPU that a hypervisor offers is a platform of its own, with the profile that NVIDIA's vGPU software names:
/// `GRID A100-10C` is `a100-10c`.
///
/// If the first word after the vendor is letters followed by digits (`A100-SXM4-80GB`, `H200`, `GB200`), the model is a
/// data centre product and that word up to its first `-` is the platform. Otherwise all words count except memory
/// sizes. The result has lower-case letters, digits and `-`, at most 63 bytes, and is empty if the model is.
pub fn slug(model: &str) -> String {
    let words = model.split_whitespace().map(str::to_ascii_lowercase);
    let mut words = words
        .filter(|word| !VENDOR.contains(&word.as_str()))
        .peekable();
    if let Some(word) = words.peek().filter(|word| has_vgpu_profile(word)) {
        return tidy(word);
    }
    let product = words.peek().and_then(|word| word.split('-').next());
    if let Some(product) = product.filter(|product| is_product(product)) {
        return tidy(product);
    }
    let telling = words.filter(|word| !is_memory(word));
    let name = telling.fold(String::new(), |name, word| name + "-" + &word);
    tidy(&name)
}

/// Derives the platform of a GPU of which the driver tells that it is a slice, whatever its model is called.
pub fn vgpu_slug(model: &str) -> String {
    let is_told = model
        .split_whitespace()
        .any(|word| has_vgpu_profile(&word.to_ascii_lowercase()));
    match is_told {
        true => slug(model),
        false => tidy(&(String::from("vgpu-") + &slug(model))),
    }
}

/// Matches names with a profile of vGPU software: memory in GB, after the number of MIG slices if there are any, and the
/// series, as in `a100-10c`, `a100-1-5c` and `rtx6000-ada-12q`.
fn has_vgpu_profile(word: &str) -> bool {
    let Some((_, profile)) = word.rsplit_once('-') else {
        return false;
    };
    let gigabytes = profile.trim_end_matches(['a', 'b', 'c', 'q']);
    gigabytes.len() + 1 == profile.len()
        && !gigabytes.is_empty()
        && gigabytes.bytes().all(|b| b.is_ascii_digit())
}

/// Matches letters, digits and at most two letters: `a100`, `h200`, `l40s`, `t4`, `gb200`, `v100`.
fn is_product(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| c.is_ascii_lowercase());
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    let letters = word.len() - digits.len();
    let numbers = digits.len() - rest.len();
    (1..=2).contains(&letters)
        && numbers > 0
        && rest.len() <= 2
        && rest.bytes().all(|b| b.is_ascii_lowercase())
}

/// Matches memory sizes such as `80gb`.
fn is_memory(word: &str) -> bool {
    word.strip_suffix("gb")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

fn tidy(name: &str) -> String {
    let mut slug = String::new();
    for c in name.chars() {
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    slug.truncate(MAX_SLUG_BYTES);
    slug.truncate(slug.trim_end_matches('-').len());
    slug
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_map_to_what_people_call_them() {
        for (model, platform) in [
            ("NVIDIA A100-SXM4-80GB", "a100"),
            ("NVIDIA A100 80GB PCIe", "a100"),
            ("A100-PCIE-40GB", "a100"),
            ("NVIDIA H100 80GB HBM3", "h100"),
            ("NVIDIA H100 NVL", "h100"),
            ("NVIDIA H200", "h200"),
            ("NVIDIA GH200 480GB", "gh200"),
            ("NVIDIA B200", "b200"),
            ("NVIDIA L40S", "l40s"),
            ("NVIDIA L4", "l4"),
            ("Tesla V100-SXM2-32GB", "v100"),
            ("Tesla T4", "t4"),
            ("NVIDIA GeForce RTX 4090", "rtx-4090"),
            ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada-generation"),
            ("Quadro RTX 6000", "quadro-rtx-6000"),
            ("NVIDIA TITAN V", "titan-v"),
            ("NVIDIA Rubin CPX 128GB", "rubin-cpx"),
            ("H100", "h100"),
            ("GRID A100-10C", "a100-10c"),
            ("NVIDIA A100-10C", "a100-10c"),
            ("NVIDIA A100-1-5C", "a100-1-5c"),
            ("NVIDIA L40S-48Q", "l40s-48q"),
            ("NVIDIA H100XM-80C", "h100xm-80c"),
            ("NVIDIA RTX6000-Ada-12Q", "rtx6000-ada-12q"),
            ("GRID K1", "k1"),
            ("  \u{1b}[2J  ", "2j"),
            ("", ""),
        ] {
            assert_eq!(slug(model), platform, "{model}");
        }
    }

    #[test]
    fn a_slice_is_never_taken_for_the_whole_gpu() {
        for (model, platform) in [
            ("NVIDIA A100-10C", "a100-10c"),
            ("NVIDIA A100-SXM4-80GB", "vgpu-a100"),
            ("", "vgpu"),
        ] {
            assert_eq!(vgpu_slug(model), platform, "{model}");
        }
    }

    #[test]
    fn platforms_are_asked_for_by_name_in_order_of_liking() {
        let names = |text| -> Vec<String> {
            let asked = parse_platforms(text).unwrap();
            asked.into_iter().map(String::from).collect()
        };
        assert_eq!(names("h100"), ["h100"]);
        assert_eq!(names("h100, a100,H100"), ["h100", "a100"]);
        assert_eq!(names("RTX-4090"), ["rtx-4090"]);
        assert!(names("any").is_empty() && names("h100, any").is_empty());
        for text in ["", "h100,", "h 100", "-"] {
            assert!(parse_platforms(text).is_err(), "{text}");
        }
        assert_eq!(from_slug("l40s").as_str(), "l40s");
        assert_eq!(from_slug("").as_str(), GENERIC_GPU);
    }

    #[test]
    fn no_name_is_too_long_or_ends_in_a_dash() {
        let long = slug(&"abc ".repeat(60));
        assert!(
            long.len() <= MAX_SLUG_BYTES && !long.ends_with('-'),
            "{long}"
        );
    }
}
