// What the catalogue lists: for every collective and algorithm, the chunks of its message and the steps of one rank.
#pragma once

#include <cstdint>

#include "schedule/emit.hpp"
#include "schedule/schedule.hpp"

namespace gradsync {

using CountOf = std::uint32_t(const Recipe&);                        // chunks of the message
using ScratchOf = std::uint32_t(const Recipe&, std::uint32_t rank);  // scratch copies that the rank needs
using StepsOf = void(const Recipe&, std::uint32_t rank, Emit& out);

// Chunk counts that several algorithms share.
CountOf one_chunk, chunk_a_rank, chunk_a_segment;
ScratchOf no_scratch, scratch_from_third_rank;

StepsOf ring_all_reduce, ring_reduce_scatter_alone, ring_all_gather_alone;
ScratchOf ring_reduce_scatter_scratch;

StepsOf circulant_all_reduce, circulant_reduce_scatter_alone, circulant_all_gather_alone;

StepsOf recursive_doubling_all_reduce;

StepsOf halving_doubling_all_reduce;
CountOf halving_doubling_chunks;

StepsOf one_shot_all_reduce;
StepsOf two_shot_all_reduce;
CountOf two_shot_chunks;
StepsOf direct_reduce_scatter_alone, direct_all_gather_alone, direct_all_to_all, direct_send, direct_recv;

StepsOf flat_all_reduce, flat_broadcast, flat_reduce, flat_gather, flat_scatter;
ScratchOf flat_reduce_scratch;

StepsOf tree_all_reduce, tree_broadcast, tree_reduce, tree_gather, tree_scatter;
ScratchOf tree_scratch;

StepsOf double_tree_all_reduce;
CountOf double_tree_chunks;

StepsOf hierarchical_all_reduce;
CountOf hierarchical_chunks;
ScratchOf hierarchical_scratch;

}  // namespace gradsync
