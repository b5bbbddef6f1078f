// All-reduce of sparse tensors (COO): every rank gets the indices and values of all, in the order of the ranks, and adds up what
// has the same index. How much the others bring is known only after a first exchange, and what this rank has called meanwhile may
// not come between: so these run on a thread and a communicator of their own, in their order.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <numeric>

#include "c10d/call.hpp"

namespace gradsync::pytorch {
namespace {

constexpr CallName kSparseAllReduce {
#if GRADSYNC_TORCH_SINCE(2, 1)
  ::c10d::OpType::_ALLREDUCE_SPARSE,
#else
  ::c10d::OpType::ALLREDUCE,
#endif
      "sparse all_reduce", "gradsync:sparse_all_reduce"
};

constexpr std::size_t kDimensionsMax = 16;

// What a rank brings, and what must be equal on all.
struct Shape {
  std::int64_t entries = 0, operation = 0, type = 0, sparse_dimensions = 0, dimensions = 0;
  std::array<std::int64_t, kDimensionsMax> sizes{};

  bool fits(const Shape& other) const {
    return operation == other.operation && type == other.type && sparse_dimensions == other.sparse_dimensions &&
           dimensions == other.dimensions && sizes == other.sizes;
  }
};
constexpr std::size_t kShapeWords = sizeof(Shape) / sizeof(std::int64_t);
static_assert(kShapeWords == 5 + kDimensionsMax);

Shape shape_of(const at::Tensor& coalesced, Operator op) {
  Shape shape{coalesced._nnz(), static_cast<std::int64_t>(op), static_cast<std::int64_t>(coalesced.scalar_type()),
              coalesced.sparse_dim(), coalesced.dim()};
  std::copy(coalesced.sizes().begin(), coalesced.sizes().end(), shape.sizes.begin());
  return shape;
}

std::string text_of(const Shape& shape) {
  return fmt::format("{} of {} [{}] with {} sparse dimensions", name_of(static_cast<Operator>(shape.operation)),
                     name_of(static_cast<at::ScalarType>(shape.type)),
                     fmt::join(shape.sizes.begin(), shape.sizes.begin() + shape.dimensions, ", "),
                     shape.sparse_dimensions);
}

std::vector<Shape> all_shapes(Communicator& comm, const Shape& mine, const CallOptions& options) {
  std::vector<Shape> shapes(static_cast<std::size_t>(comm.size()));
  comm.all_gather(ConstView(&mine, kShapeWords, DType::i64),
                  View{shapes.data(), shapes.size() * kShapeWords, DType::i64}, options);
  for (std::size_t rank = 0; rank < shapes.size(); ++rank)
    if (!shapes[rank].fits(mine))
      throw Error(
          Status{ErrorCode::mismatch, static_cast<int>(rank),
                 fmt::format("sparse all_reduce: {} here, {} on rank {}", text_of(mine), text_of(shapes[rank]), rank)});
  return shapes;
}

// The rows of all ranks, one after another.
at::Tensor all_rows(Communicator& comm, const at::Tensor& mine, const std::vector<Shape>& shapes,
                    const CallOptions& options) {
  const Elements elements = elements_to_move(kSparseAllReduce.name, mine.scalar_type());
  std::vector<std::int64_t> sizes(mine.sizes().begin(), mine.sizes().end());
  sizes[0] = 0;
  std::int64_t row = 1;
  for (std::size_t i = 1; i < sizes.size(); ++i) row *= sizes[i];
  std::vector<std::size_t> counts;
  for (const Shape& shape : shapes) {
    counts.push_back(static_cast<std::size_t>(shape.entries * row) * elements.each);
    sizes[0] += shape.entries;
  }
  const at::Tensor all = at::empty(sizes, mine.options());
  comm.all_gather(view_of(mine, elements), view_of(all, elements), counts, options);
  return all;
}

bool narrow(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

// By parts: PyTorch 2 divides a complex number by a real one as by a complex one, which rounds more than once.
at::Tensor divided(const at::Tensor& sum, int ranks) {
  if (sum.is_complex()) return at::view_as_complex(at::view_as_real(sum).div(ranks));
  return at::isIntegralType(sum.scalar_type(), false) ? sum.div(ranks, "trunc") : sum.div(ranks);
}

// Narrow floats are added up as float32 and rounded once.
at::Tensor summed(const at::Tensor& indices, const at::Tensor& values, const at::Tensor& like, Operator op, int ranks) {
  const at::ScalarType type = like.scalar_type();
  const at::Tensor wide = narrow(type) ? values.to(at::kFloat) : values;
  at::Tensor sum =
      at::sparse_coo_tensor(indices.t().contiguous(), wide, like.sizes(), wide.options().layout(at::kSparse))
          .coalesce();
  at::Tensor result = sum._values();
  if (op == Operator::AVG) result = divided(result, ranks);
  return at::_sparse_coo_tensor_unsafe(sum._indices(), result.to(type), like.sizes(), like.options())._coalesced_(true);
}

struct SparseCall {
  at::Tensor tensor;
  ::c10d::ReduceOp op;
  double factor = 1;
  CallOptions options;

  void run(Communicator& comm) const {
    const AsMemory guard;
    const at::Tensor mine = tensor.coalesce();
    const auto shapes = all_shapes(comm, shape_of(mine, op.op_), options);
    const at::Tensor own_values = factor == 1 ? mine._values() : mine._values().mul(factor);
    const at::Tensor indices = all_rows(comm, mine._indices().t().contiguous(), shapes, options);
    const at::Tensor values = all_rows(comm, own_values.contiguous(), shapes, options);
    tensor.copy_(summed(indices, values, mine, op.op_, comm.size()));
  }
};

void check(const at::Tensor& tensor, const ::c10d::ReduceOp& op) {
  const char* name = kSparseAllReduce.name;
  if (!tensor.device().is_cpu() || tensor.layout() != at::kSparse)
    throw Error(Status{ErrorCode::unsupported, -1,
                       fmt::format("{}: the tensor {} is {} on {}, gradsync supports COO tensors on cpu", name,
                                   describe(tensor), c10::str(tensor.layout()), tensor.device().str())});
  if (op.op_ != Operator::SUM && op.op_ != Operator::AVG && op.op_ != Operator::PREMUL_SUM)
    throw Error(Status{
        ErrorCode::unsupported, -1,
        fmt::format("{} of {}: {} is not defined where ranks have different indices, SUM, AVG and PREMUL_SUM are", name,
                    name_of(tensor.scalar_type()), name_of(op.op_))});
  elements_to_reduce(name, tensor.scalar_type(), op.op_);
  if (static_cast<std::size_t>(tensor.dim()) > kDimensionsMax)
    throw Error(Status{ErrorCode::unsupported, -1,
                       fmt::format("{}: {} dimensions, expected at most {}", name, tensor.dim(), kDimensionsMax)});
}

}  // namespace

ProcessGroupGradsync::WorkPointer ProcessGroupGradsync::sparse_allreduce(const at::Tensor& tensor,
                                                                         const ::c10d::AllreduceOptions& options) {
  return call(kSparseAllReduce, options.timeout, [&](Started& on) {
    check(tensor, options.reduceOp);
    if (Status status = on.comm.status(); !status.ok()) throw Error(std::move(status));
    on.plan.shown = on.plan.used = {tensor};
    on.plan.outputs = {{tensor}};
    const SparseCall call{tensor, options.reduceOp, factor_of(options.reduceOp), on.options};
    on.plan.task = on.session.side_tasks().run([call, session = &on.session] { call.run(session->side_comm()); });
  });
}

}  // namespace gradsync::pytorch
