/// The resources of a board for a split network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Board {
    /// Bytes of memory for activations, sums and packets.
    pub free_memory: u64,
    /// Bytes for weights.
    pub free_flash: u64,
    /// Multiplications, with their additions, each second.
    pub operations_per_second: f64,
}

/// What carries packets between the boards: one medium that they share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes each second, of all boards together.
    pub bytes_per_second: f64,
    /// Seconds that a packet takes beside its bytes.
    pub seconds_per_packet: f64,
}

impl Link {
    /// Switched Ethernet at 100 Mbit/s, with 50 µs of a small processor for each packet.
    pub const ETHERNET_100: Self = Self {
        bytes_per_second: 12.5e6,
        seconds_per_packet: 50e-6,
    };
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// No boards, or too many.
    #[error("{count} boards were given: between 1 and {most} can share a network")]
    Boards {
        /// As given.
        count: usize,
        /// The most.
        most: usize,
    },
    /// No layers.
    #[error("the network has no layers")]
    NoLayers,
    /// A figure that is no positive number.
    #[error("{field} of board {board} is {value}: it must be a positive number")]
    Board {
        /// Counted from 0.
        board: usize,
        /// Which figure.
        field: &'static str,
        /// As given.
        value: f64,
    },
    /// A figure of the link that is no positive number.
    #[error("{field} of the link is {value}: it must be a positive number")]
    Link {
        /// Which figure.
        field: &'static str,
        /// As given.
        value: f64,
    },
    /// Portions that are not one for each board, or that are all 0.
    #[error("the portions {portions:?} do not divide work among {boards} boards")]
    Portions {
        /// As given.
        portions: Vec<u32>,
        /// The number of boards.
        boards: usize,
    },
    /// A stage of a plan that cannot be.
    #[error("stage {stage} of the plan cannot be: {what}")]
    Stage {
        /// Counted from 0.
        stage: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// Whatever the split, a board's memory is too small.
    #[error(
        "board {board} has {free} bytes of memory, but the smallest split needs {needed}: add boards or memory"
    )]
    Memory {
        /// The board that lacks most.
        board: usize,
        /// What it has.
        free: u64,
        /// What it needs.
        needed: u64,
    },
    /// Whatever the split, a piece takes too long, or its message is too long.
    #[error(
        "no board computes the smallest piece of a layer within {most_seconds} s and {most_bytes} bytes a message"
    )]
    Piece {
        /// Seconds that a piece may take.
        most_seconds: f64,
        /// Bytes that a message may have.
        most_bytes: u64,
    },
    /// Whatever the split, the weights do not fit.
    #[error("board {board} has {free} bytes of flash, but its weights take {needed}: add boards or flash")]
    Flash {
        /// The board that lacks most.
        board: usize,
        /// What it has.
        free: u64,
        /// What it needs.
        needed: u64,
    },
}

/// The most boards that share a network: as many as a target set has bits.
pub(super) const MOST_BOARDS: usize = 127;

/// That there are boards, and their figures are numbers.
pub(super) fn check(boards: &[Board], link: Link) -> Result<(), PlanError> {
    if boards.is_empty() || boards.len() > MOST_BOARDS {
        return Err(PlanError::Boards {
            count: boards.len(),
            most: MOST_BOARDS,
        });
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    for (index, board) in boards.iter().enumerate() {
        let figures = [
            ("free_memory", board.free_memory as f64),
            ("free_flash", board.free_flash as f64),
            ("operations_per_second", board.operations_per_second),
        ];
        for (field, value) in figures {
            if !positive(value) {
                return Err(PlanError::Board {
                    board: index,
                    field,
                    value,
                });
            }
        }
    }
    if !positive(link.bytes_per_second) {
        return Err(PlanError::Link {
            field: "bytes_per_second",
            value: link.bytes_per_second,
        });
    }
    // A packet may cost nothing beside its bytes.
    match link.seconds_per_packet.is_finite() && link.seconds_per_packet >= 0.0 {
        true => Ok(()),
        false => Err(PlanError::Link {
            field: "seconds_per_packet",
            value: link.seconds_per_packet,
        }),
    }
}
