// Calls that compute: all-reduce, reduce, reduce-scatter.
#include <fmt/format.h>

#include "c10d/call.hpp"
#include "c10d/overlap.hpp"

namespace gradsync::pytorch {
namespace {

using ::c10d::OpType;
using Tensors = ProcessGroupGradsync::Tensors;

constexpr CallName kAllReduce{OpType::ALLREDUCE, "all_reduce", "gradsync:all_reduce"};
constexpr CallName kAllReduceCoalesced{OpType::ALLREDUCE_COALESCED, "all_reduce_coalesced", "gradsync:all_reduce"};
constexpr CallName kReduce{OpType::REDUCE, "reduce", "gradsync:reduce"};
constexpr CallName kReduceScatter{OpType::REDUCE_SCATTER, "reduce_scatter", "gradsync:reduce_scatter"};
constexpr CallName kReduceScatterBase{OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor",
                                      "gradsync:_reduce_scatter_base"};

// Tensors of one type that follow each other travel as one message up to this size: a message costs microseconds, copying
// this much no more than that.
constexpr std::size_t kFusedBytesMax = 256 * 1024;

// The factor of PREMUL_SUM, applied to memory that may be overwritten, or to a copy.
at::Tensor multiplied(const at::Tensor& memory, const ::c10d::ReduceOp& op, bool overwrite) {
  if (op.op_ != Operator::PREMUL_SUM) return memory;
  const at::Tensor target = overwrite ? memory : memory.clone();
  return target.mul_(factor_of(op));
}

std::string sizes_differ(const char* call, const at::Tensor& input, const at::Tensor& output, std::int64_t expected) {
  return fmt::format("{}: the input {} has {} elements, expected {} for the output {}", call, describe(input),
                     input.numel(), expected, describe(output));
}

// Where the next message begins: tensors of one type, fused while small.
std::size_t end_of_fused(const Tensors& tensors, std::size_t begin) {
  std::size_t bytes = tensors[begin].nbytes(), end = begin + 1;
  for (; end < tensors.size() && tensors[end].scalar_type() == tensors[begin].scalar_type(); ++end) {
    bytes += tensors[end].nbytes();
    if (bytes > kFusedBytesMax) break;
  }
  return end;
}

}  // namespace

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::allreduce(Tensors& tensors,
                                                                  const ::c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().layout() != at::kStrided)
    return sparse_allreduce(tensors.front(), options);
  return call(kAllReduce, options.timeout, [&](Started& on) {
    const at::Tensor& tensor = only(kAllReduce.name, "input", tensors);
    check_writable(kAllReduce.name, tensor);
    const Elements elements = elements_to_reduce(kAllReduce.name, tensor.scalar_type(), options.reduceOp);
    const at::Tensor memory =
        multiplied(writable(tensor, on.plan.copies, true, elements.staged), options.reduceOp, true);
    on.plan.shown = on.plan.used = {tensor};
    on.plan.outputs = {{tensor}};
    on.plan.used.push_back(memory);
    on.plan.parts.push_back(
        on.comm.all_reduce_async(view_of(memory, elements), engine_operator(options.reduceOp), on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::allreduce_coalesced(
    Tensors& tensors, const ::c10d::AllreduceCoalescedOptions& options) {
  return call(kAllReduceCoalesced, options.timeout, [&](Started& on) {
    if (tensors.empty())
      throw Error(Status{ErrorCode::invalid_argument, -1, "all_reduce_coalesced: no tensors, expected at least 1"});
    for (const at::Tensor& tensor : tensors) {  // all of them before the first byte moves
      check_writable(kAllReduceCoalesced.name, tensor);
      elements_to_reduce(kAllReduceCoalesced.name, tensor.scalar_type(), options.reduceOp);
    }
    check_apart(kAllReduceCoalesced.name, tensors);
    on.plan.shown = on.plan.used = tensors;
    on.plan.outputs = {tensors};
    for (std::size_t begin = 0, end = 0; begin < tensors.size(); begin = end) {
      end = end_of_fused(tensors, begin);
      const Tensors fused(tensors.begin() + begin, tensors.begin() + end);
      const Elements elements =
          elements_to_reduce(kAllReduceCoalesced.name, fused.front().scalar_type(), options.reduceOp);
      const at::Tensor memory =
          multiplied(writable_all(fused, on.plan.copies, true, elements.staged), options.reduceOp, true);
      on.plan.used.push_back(memory);
      on.plan.parts.push_back(
          on.comm.all_reduce_async(view_of(memory, elements), engine_operator(options.reduceOp), on.options));
    }
  });
}

#if GRADSYNC_TORCH_SINCE(2, 1)
ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::allreduce_sparse(Tensors& tensors,
                                                                         const ::c10d::AllreduceOptions& options) {
  return allreduce(tensors, options);
}
#endif

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  return call(kReduce, options.timeout, [&](Started& on) {
    const at::Tensor& tensor = only(kReduce.name, "input", tensors);
    check_root(kReduce.name, options.rootRank);
    const bool root = options.rootRank == getRank();
    root ? check_writable(kReduce.name, tensor) : check_dense(kReduce.name, tensor);
    const Elements elements = elements_to_reduce(kReduce.name, tensor.scalar_type(), options.reduceOp);
    at::Tensor memory =
        root ? writable(tensor, on.plan.copies, true, elements.staged) : readable(tensor, elements.staged);
    memory = multiplied(memory, options.reduceOp, root);
    on.plan.shown = on.plan.used = {tensor};
    on.plan.outputs = {{tensor}};
    on.plan.used.push_back(memory);
    const View view = view_of(memory, elements);
    on.plan.parts.push_back(on.comm.reduce_async(view, root ? view : View{nullptr, 0, elements.dtype},
                                                 engine_operator(options.reduceOp), static_cast<int>(options.rootRank),
                                                 on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                                       const ::c10d::ReduceScatterOptions& options) {
  return call(kReduceScatter, options.timeout, [&](Started& on) {
    const at::Tensor& output = only(kReduceScatter.name, "output", outputs);
    if (inputs.size() != 1 || inputs.front().size() != static_cast<std::size_t>(getSize()))
      throw Error(Status{ErrorCode::invalid_argument, -1,
                         fmt::format("reduce_scatter: {} input tensors, expected one for each of {} ranks",
                                     inputs.empty() ? 0 : inputs.front().size(), getSize())});
    const Tensors& list = inputs.front();
    check_writable(kReduceScatter.name, output);
    for (const at::Tensor& input : list) {
      check_dense(kReduceScatter.name, input);
      check_same_type(kReduceScatter.name, input, output);
    }
    const at::Tensor& mine = list[static_cast<std::size_t>(getRank())];
    if (mine.numel() != output.numel())
      throw Error(
          Status{ErrorCode::invalid_argument, -1, sizes_differ(kReduceScatter.name, mine, output, output.numel())});
    check_apart(kReduceScatter.name, {output}, list, place_of(output, getRank(), list.size()));
    const Elements elements = elements_to_reduce(kReduceScatter.name, output.scalar_type(), options.reduceOp);
    const at::Tensor from = multiplied(readable_all(list, elements.staged), options.reduceOp, false);
    const at::Tensor to = writable(output, on.plan.copies, false, elements.staged);
    on.plan.shown = list;
    on.plan.outputs = {{output}};
    on.plan.used = {from, to, output};
    on.plan.parts.push_back(on.comm.reduce_scatter_async(view_of(from, elements), view_of(to, elements),
                                                         counts_of(list, elements), engine_operator(options.reduceOp),
                                                         on.options));
  });
}

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const ::c10d::ReduceScatterOptions& options) {
  return call(kReduceScatterBase, options.timeout, [&](Started& on) {
    check_writable(kReduceScatterBase.name, output);
    check_dense(kReduceScatterBase.name, input);
    check_same_type(kReduceScatterBase.name, input, output);
    if (input.numel() != output.numel() * getSize())
      throw Error(Status{ErrorCode::invalid_argument, -1,
                         sizes_differ(kReduceScatterBase.name, input, output, output.numel() * getSize())});
    if (!in_place(output, block_of(input, getRank(), output))) check_apart(kReduceScatterBase.name, {output}, {input});
    const Elements elements = elements_to_reduce(kReduceScatterBase.name, output.scalar_type(), options.reduceOp);
    const at::Tensor from = multiplied(readable(input, elements.staged), options.reduceOp, false);
    const at::Tensor to = writable(output, on.plan.copies, false, elements.staged);
    on.plan.shown = {input};
    on.plan.outputs = {{output}};
    on.plan.used = {from, to, output};
    on.plan.parts.push_back(on.comm.reduce_scatter_async(view_of(from, elements), view_of(to, elements),
                                                         engine_operator(options.reduceOp), on.options));
  });
}

}  // namespace gradsync::pytorch
