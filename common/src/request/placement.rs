//! Validates where a step may run: its platforms, image, number of hosts and level of the topology.

use alloc::format;
use alloc::string::String;

use super::FieldError;
use crate::error_code::ErrorCode;
use crate::id::LevelName;
use crate::image::Image;
use crate::limit::MAX_GANG_NODES;
use crate::platform;
use crate::topology::DomainRequest;

pub(super) fn check_platform(text: Option<&str>) -> Result<(), FieldError> {
    let asked = text.map(platform::parse_platforms).transpose();
    asked.map(drop).map_err(|e| {
        let message = format!("{e}; with several, write `,` between them");
        FieldError::new(ErrorCode::InvalidPlatform, "platform", message)
    })
}

pub(super) fn check_image(text: Option<&str>) -> Result<Option<Image>, FieldError> {
    let image = text.map(Image::new).transpose();
    image.map_err(|e| FieldError::new(ErrorCode::InvalidImage, "image", e))
}

/// The number of hosts; 0 if a step leaves it to the allocation inside which it is to run.
pub(super) fn check_nodes(nodes: Option<u32>, is_inside: bool) -> Result<u32, FieldError> {
    let nodes = match nodes {
        None if is_inside => return Ok(0),
        nodes => nodes.unwrap_or(1),
    };
    if nodes == 0 || nodes > MAX_GANG_NODES {
        return Err(FieldError::new(
            ErrorCode::InvalidNodes,
            "nodes",
            format!("{nodes} hosts: write 1 to {MAX_GANG_NODES}"),
        ));
    }
    Ok(nodes)
}

pub(super) fn check_within(
    required: Option<String>,
    preferred: Option<String>,
) -> Result<Option<DomainRequest>, FieldError> {
    let level = |field: &str, name| {
        let level = LevelName::new(name);
        level.map_err(|e| FieldError::new(ErrorCode::InvalidName, field, e))
    };
    Ok(match (required, preferred) {
        (Some(_), Some(preferred)) => {
            let message = format!(
                "`{}`: the step must run within a level already: leave out `within` or `prefer_within`",
                preferred.escape_default()
            );
            return Err(FieldError::new(
                ErrorCode::Contradiction,
                "prefer_within",
                message,
            ));
        }
        (Some(name), None) => Some(DomainRequest {
            level: level("within", name)?,
            required: true,
        }),
        (None, Some(name)) => Some(DomainRequest {
            level: level("prefer_within", name)?,
            required: false,
        }),
        (None, None) => None,
    })
}
