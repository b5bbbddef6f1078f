// Calls that move: broadcast, all-gather, gather, scatter, all-to-all.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "c10d/call.hpp"
#include "c10d/overlap.hpp"

namespace gradsync::pytorch {
namespace {

using ::c10d::OpType;
using Tensors = ProcessGroupGradsync::Tensors;
using TensorLists = ProcessGroupGradsync::TensorLists;

constexpr CallName kBroadcast{OpType::BROADCAST, "broadcast", "gradsync:broadcast"};
constexpr CallName kAllGather{OpType::ALLGATHER, "all_gather", "gradsync:all_gather"};
constexpr CallName kAllGatherBase{OpType::_ALLGATHER_BASE, "all_gather_into_tensor", "gradsync:_all_gather_base"};
constexpr CallName kAllGatherCoalesced{OpType::ALLGATHER_COALESCED, "all_gather_coalesced", "gradsync:all_gather"};
constexpr CallName kGather{OpType::GATHER, "gather", "gradsync:gather"};
constexpr CallName kScatter{OpType::SCATTER, "scatter", "gradsync:scatter"};
constexpr CallName kAllToAllBase{OpType::ALLTOALL_BASE, "all_to_all_single", "gradsync:all_to_all"};
constexpr CallName kAllToAll{OpType::ALLTOALL, "all_to_all", "gradsync:all_to_all"};

[[noreturn]] void refuse(std::string message) {
  throw Error(Status{ErrorCode::invalid_argument, -1, std::move(message)});
}

// A tensor for each rank, in the one list that there is.
const Tensors& for_each_rank(const char* call, const char* what, const TensorLists& lists, int ranks) {
  const std::size_t found = lists.size() == 1 ? lists.front().size() : 0;
  if (lists.size() != 1 || found != static_cast<std::size_t>(ranks))
    refuse(fmt::format("{}: {} {} tensors in {} lists, expected one for each of {} ranks in one list", call, found,
                       what, lists.size(), ranks));
  return lists.front();
}

void check_as_many(const char* call, const at::Tensor& a, const at::Tensor& b) {
  check_same_type(call, a, b);
  if (a.numel() != b.numel())
    refuse(fmt::format("{}: the tensors {} and {} have different numbers of elements", call, describe(a), describe(b)));
}

void check_all_as_many(const char* call, const Tensors& tensors, const at::Tensor& as) {
  for (const at::Tensor& tensor : tensors) check_as_many(call, tensor, as);
}

// Elements for each rank: the splits, in rows of the tensor, or equal parts of its rows.
std::vector<std::size_t> split_counts(const at::Tensor& tensor, const std::vector<std::int64_t>& splits, int ranks,
                                      const Elements& elements, const char* what) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::size_t row = rows == 0 ? 0 : count_of(tensor, elements) / static_cast<std::size_t>(rows);
  if (splits.empty()) {
    if (rows % ranks != 0)
      refuse(fmt::format("all_to_all_single: the {} {} has {} rows, which cannot be split among {} ranks", what,
                         describe(tensor), rows, ranks));
    return std::vector<std::size_t>(static_cast<std::size_t>(ranks), row * static_cast<std::size_t>(rows / ranks));
  }
  const bool negative = std::any_of(splits.begin(), splits.end(), [](std::int64_t n) { return n < 0; });
  const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  if (splits.size() != static_cast<std::size_t>(ranks) || negative || sum != rows)
    refuse(fmt::format("all_to_all_single: the {} splits are [{}], expected {} numbers from 0 whose sum is {}", what,
                       fmt::join(splits, ", "), ranks, rows));
  std::vector<std::size_t> counts;
  for (const std::int64_t split : splits) counts.push_back(row * static_cast<std::size_t>(split));
  return counts;
}

Tensors all_of(const TensorLists& lists) {
  Tensors all;
  for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Several tensors as bytes in one block, each aligned for any element.
std::int64_t padded(const at::Tensor& tensor) { return static_cast<std::int64_t>((tensor.nbytes() + 15) / 16 * 16); }

std::int64_t padded(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                         [](std::int64_t sum, const at::Tensor& tensor) { return sum + padded(tensor); });
}

Tensors places_in(const at::Tensor& block, std::int64_t at, const Tensors& like) {
  Tensors places;
  for (const at::Tensor& tensor : like) {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    places.push_back(block.narrow(0, at, bytes).view(tensor.scalar_type()).view(tensor.sizes()));
    at += padded(tensor);
  }
  return places;
}

}  // namespace

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::broadcast(Tensors& tensors,
                                                                  const ::c10d::BroadcastOptions& options) {
  return call(kBroadcast, options.timeout, [&](Started& on) {
    const at::Tensor& tensor = only(kBroadcast.name, "input", tensors);
    check_root(kBroadcast.name, options.rootRank);
    const bool root = options.rootRank == getRank();
    root ? check_dense(kBroadcast.name, tensor) : check_writable(kBroadcast.name, tensor);
    const Elements elements = elements_to_move(kBroadcast.name, tensor.scalar_type());
    const at::Tensor memory = root ? readable(tensor) : writable(tensor, on.plan.copies, false);
    on.plan.shown = {tensor};
    on.plan.outputs = {{tensor}};
    on.plan.used = {tensor, memory};
    on.plan.parts.push_back(
        on.comm.broadcast_async(view_of(memory, elements), static_cast<int>(options.rootRank), on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::allgather(TensorLists& outputs, Tensors& inputs,
                                                                  const ::c10d::AllgatherOptions& options) {
  return call(kAllGather, options.timeout, [&](Started& on) {
    const at::Tensor& input = only(kAllGather.name, "input", inputs);
    const Tensors& list = for_each_rank(kAllGather.name, "output", outputs, getSize());
    check_dense(kAllGather.name, input);
    for (const at::Tensor& output : list) {
      check_writable(kAllGather.name, output);
      check_same_type(kAllGather.name, output, input);
    }
    const at::Tensor& mine = list[static_cast<std::size_t>(getRank())];
    check_as_many(kAllGather.name, mine, input);
    check_apart(kAllGather.name, list, {input}, {mine});
    const Elements elements = elements_to_move(kAllGather.name, input.scalar_type());
    const at::Tensor from = readable(input), to = writable_all(list, on.plan.copies, false);
    on.plan.shown = {input};
    on.plan.outputs = {list};
    on.plan.used = {from, to};
    on.plan.parts.push_back(on.comm.all_gather_async(view_of(from, elements), view_of(to, elements),
                                                     counts_of(list, elements), on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                                        const ::c10d::AllgatherOptions& options) {
  return call(kAllGatherBase, options.timeout, [&](Started& on) {
    check_dense(kAllGatherBase.name, input);
    check_writable(kAllGatherBase.name, output);
    check_same_type(kAllGatherBase.name, output, input);
    if (output.numel() != input.numel() * getSize())
      refuse(fmt::format("{}: the output {} has {} elements, expected {} for the input {} of each of {} ranks",
                         kAllGatherBase.name, describe(output), output.numel(), input.numel() * getSize(),
                         describe(input), getSize()));
    check_apart(kAllGatherBase.name, {output}, {input}, {block_of(output, getRank(), input)});
    const Elements elements = elements_to_move(kAllGatherBase.name, input.scalar_type());
    const at::Tensor from = readable(input), to = writable(output, on.plan.copies, false);
    on.plan.shown = {input};
    on.plan.outputs = {{output}};
    on.plan.used = {from, to, output};
    on.plan.parts.push_back(on.comm.all_gather_async(view_of(from, elements), view_of(to, elements), on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                            const ::c10d::AllgatherOptions& options) {
  return call(kAllGatherCoalesced, options.timeout, [&](Started& on) {
    const char* name = kAllGatherCoalesced.name;
    if (outputs.size() != static_cast<std::size_t>(getSize()) || inputs.empty())
      refuse(fmt::format("{}: {} inputs and {} lists of outputs, expected inputs and {} lists", name, inputs.size(),
                         outputs.size(), getSize()));
    for (const Tensors& list : outputs) {
      if (list.size() != inputs.size())
        refuse(fmt::format("{}: a list of {} outputs for {} inputs", name, list.size(), inputs.size()));
      for (std::size_t i = 0; i < list.size(); ++i) {
        check_dense(name, inputs[i]);
        elements_to_move(name, inputs[i].scalar_type());
        check_writable(name, list[i]);
        check_as_many(name, list[i], inputs[i]);
      }
    }
    check_apart(name, all_of(outputs), inputs, outputs[static_cast<std::size_t>(getRank())]);
    const std::int64_t bytes = padded(inputs);
    const at::Tensor from = at::zeros({bytes}, at::kByte), to = at::empty({bytes * getSize()}, at::kByte);
    const Tensors sent = places_in(from, 0, inputs);
    for (std::size_t i = 0; i < inputs.size(); ++i) sent[i].copy_(inputs[i]);
    for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
      const Tensors landed = places_in(to, bytes * static_cast<std::int64_t>(rank), inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i)
        on.plan.copies.push_back({outputs[rank][i], landed[i].view(outputs[rank][i].sizes())});
    }
    on.plan.shown = inputs;
    on.plan.outputs = outputs;
    on.plan.used = {from, to};
    const Elements elements{DType::u8, 1};
    on.plan.parts.push_back(on.comm.all_gather_async(view_of(from, elements), view_of(to, elements), on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::gather(TensorLists& outputs, Tensors& inputs,
                                                               const ::c10d::GatherOptions& options) {
  return call(kGather, options.timeout, [&](Started& on) {
    const at::Tensor& input = only(kGather.name, "input", inputs);
    check_root(kGather.name, options.rootRank);
    check_dense(kGather.name, input);
    const Elements elements = elements_to_move(kGather.name, input.scalar_type());
    View view{nullptr, 0, elements.dtype};
    on.plan.shown = {input};
    on.plan.used = {readable(input)};
    if (options.rootRank == getRank()) {
      const Tensors& list = for_each_rank(kGather.name, "output", outputs, getSize());
      for (const at::Tensor& output : list) check_writable(kGather.name, output);
      check_all_as_many(kGather.name, list, input);
      check_apart(kGather.name, list, {input}, {list[static_cast<std::size_t>(getRank())]});
      on.plan.used.push_back(writable_all(list, on.plan.copies, false));
      on.plan.outputs = {list};
      view = view_of(on.plan.used.back(), elements);
    } else if (!outputs.empty() && !outputs.front().empty()) {
      refuse(fmt::format("gather: {} output tensors on rank {}, expected none but on the root, rank {}",
                         outputs.front().size(), getRank(), options.rootRank));
    }
    on.plan.parts.push_back(on.comm.gather_async(view_of(on.plan.used.front(), elements), view, {},
                                                 static_cast<int>(options.rootRank), on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::scatter(Tensors& outputs, TensorLists& inputs,
                                                                const ::c10d::ScatterOptions& options) {
  return call(kScatter, options.timeout, [&](Started& on) {
    const at::Tensor& output = only(kScatter.name, "output", outputs);
    check_root(kScatter.name, options.rootRank);
    check_writable(kScatter.name, output);
    const Elements elements = elements_to_move(kScatter.name, output.scalar_type());
    ConstView view{nullptr, 0, elements.dtype};
    on.plan.outputs = {{output}};
    if (options.rootRank == getRank()) {
      const Tensors& list = for_each_rank(kScatter.name, "input", inputs, getSize());
      for (const at::Tensor& input : list) check_dense(kScatter.name, input);
      check_all_as_many(kScatter.name, list, output);
      check_apart(kScatter.name, {output}, list, place_of(output, getRank(), list.size()));
      on.plan.used.push_back(readable_all(list));
      on.plan.shown = list;
      view = view_of(on.plan.used.back(), elements);
    } else if (!inputs.empty() && !inputs.front().empty()) {
      refuse(fmt::format("scatter: {} input tensors on rank {}, expected none but on the root, rank {}",
                         inputs.front().size(), getRank(), options.rootRank));
    }
    const at::Tensor to = writable(output, on.plan.copies, false);
    on.plan.used.push_back(to);
    on.plan.used.push_back(output);
    on.plan.parts.push_back(
        on.comm.scatter_async(view, view_of(to, elements), {}, static_cast<int>(options.rootRank), on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                                      std::vector<std::int64_t>& output_splits,
                                                                      std::vector<std::int64_t>& input_splits,
                                                                      const ::c10d::AllToAllOptions& options) {
  return call(kAllToAllBase, options.timeout, [&](Started& on) {
    check_dense(kAllToAllBase.name, input);
    check_writable(kAllToAllBase.name, output);
    check_same_type(kAllToAllBase.name, output, input);
    const Elements elements = elements_to_move(kAllToAllBase.name, input.scalar_type());
    const auto sent = split_counts(input, input_splits, getSize(), elements, "input");
    const auto received = split_counts(output, output_splits, getSize(), elements, "output");
    check_apart(kAllToAllBase.name, {output}, {input}, {output});
    const at::Tensor from = readable(input), to = writable(output, on.plan.copies, false);
    on.plan.shown = {input};
    on.plan.outputs = {{output}};
    on.plan.used = {from, to, output};
    on.plan.parts.push_back(
        on.comm.all_to_all_async(view_of(from, elements), view_of(to, elements), sent, received, on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::alltoall(Tensors& outputs, Tensors& inputs,
                                                                 const ::c10d::AllToAllOptions& options) {
  return call(kAllToAll, options.timeout, [&](Started& on) {
    for_each_rank(kAllToAll.name, "input", {inputs}, getSize());
    for_each_rank(kAllToAll.name, "output", {outputs}, getSize());
    for (const at::Tensor& input : inputs) {
      check_dense(kAllToAll.name, input);
      check_same_type(kAllToAll.name, input, inputs.front());
    }
    for (const at::Tensor& output : outputs) {
      check_writable(kAllToAll.name, output);
      check_same_type(kAllToAll.name, output, inputs.front());
    }
    const Elements elements = elements_to_move(kAllToAll.name, inputs.front().scalar_type());
    check_apart(kAllToAll.name, outputs, inputs, outputs);
    const at::Tensor from = readable_all(inputs), to = writable_all(outputs, on.plan.copies, false);
    on.plan.shown = inputs;
    on.plan.outputs = {outputs};
    on.plan.used = {from, to};
    on.plan.parts.push_back(on.comm.all_to_all_async(view_of(from, elements), view_of(to, elements),
                                                     counts_of(inputs, elements), counts_of(outputs, elements),
                                                     on.options));
  });
}

}  // namespace gradsync::pytorch
