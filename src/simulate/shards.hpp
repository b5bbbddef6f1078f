// How large the parts of uneven hosts should be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/schedule.hpp"
#include "simulate/network.hpp"

namespace gradsync {

// Bytes a second that each host can send and receive at the same time, in the order of the shards.
using Bandwidths = std::span<const double>;

// An all-reduce of S bytes by hosts of bandwidth b_i, of which host i owns the part f_i: it sends, and receives, the others'
// parts of S once and its own part n - 1 times, S (1 + (n - 2) f_i) in all. No parts end before
//
//     T = max(S / b_min, 2 (n - 1) S / sum b)
//
// as every host takes part with S bytes, and all together with 2 (n - 1) S; and f_i = (T b_i / S - 1) / (n - 2), scaled to a
// sum of 1, keeps every host within T. Returns T / S.
double least_seconds_a_byte(Bandwidths bandwidth);
// The same with equal parts: the slowest host sends 2 (n - 1) / n S.
double even_seconds_a_byte(Bandwidths bandwidth);

// Weights in proportion to the f_i, `shard_weights_sum` in all. Requires n >= 3 and every b_i > 0. With two hosts every
// split is the same to both.
std::vector<std::uint32_t> uneven_shards(Bandwidths bandwidth);
inline constexpr std::uint32_t shard_weights_sum = 1u << 16;

// Those that suit the recipe on this network; none where parts cannot be uneven, have nothing to gain, or all ports are
// alike. A two-shot's parts belong to ranks, so each must be alone on its host.
std::vector<std::uint32_t> shards_for(const Recipe& recipe, const Network& network);

}  // namespace gradsync
