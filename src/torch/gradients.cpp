#include "torch/gradients.hpp"

#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>

#include <cstring>
#include <unordered_set>

#include "base/status.hpp"
#include "torch/tensors.hpp"

namespace gradsync::torch {
namespace {

using ::torch::autograd::Node;
using ::torch::autograd::variable_list;

class ArrivalHook : public ::torch::autograd::FunctionPostHook {
 public:
  ArrivalHook(const std::function<void(std::size_t)>& arrived, std::size_t index) : arrived_(arrived), index_(index) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    arrived_(index_);
    return outputs;
  }

 private:
  const std::function<void(std::size_t)>& arrived_;
  std::size_t index_;
};

std::string text_of(const Tensor& tensor) {
  return fmt::format("{}{} [{}]", tensor.is_sparse() ? "sparse " : "", ::c10::toString(tensor.scalar_type()),
                     fmt::join(tensor.sizes().vec(), ", "));
}

Status unfit(const ModelParameter& parameter, const Tensor& gradient) {
  return failure(ErrorCode::invalid_argument, "gradient of {} is {}, expected {}{} [{}]{}", parameter.name,
                 text_of(gradient), parameter.sparse ? "sparse " : "", ::c10::toString(parameter.type),
                 fmt::join(parameter.shape, ", "),
                 gradient.is_sparse() ? ": name it in DistributedDataParallelOptions::sparse_parameters" : "");
}

bool fits(const ModelParameter& parameter, const Tensor& gradient) {
  return gradient.is_sparse() == parameter.sparse && gradient.scalar_type() == parameter.type &&
         gradient.sizes() == ::torch::IntArrayRef(parameter.shape);
}

const Node* node_of(const Tensor& tensor) {
  if (!tensor.defined() || !tensor.requires_grad()) return nullptr;
  return ::torch::autograd::impl::gradient_edge(tensor).function.get();
}

}  // namespace

Gradients::Gradients(std::vector<ModelParameter> parameters, std::function<void(std::size_t)> arrived)
    : parameters_(std::move(parameters)),
      views_(parameters_.size()),
      arrived_(std::move(arrived)) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    NodePointer accumulator = ::torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
    const std::uintptr_t key = accumulator->add_post_hook(std::make_unique<ArrivalHook>(arrived_, i));
    by_node_[accumulator.get()] = i;
    hooks_.push_back({std::move(accumulator), key});
  }
}

Gradients::~Gradients() {
  for (const Hook& hook : hooks_) hook.accumulator->del_post_hook(hook.key);
  ::torch::NoGradGuard none;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (is_view(i)) parameters_[i].tensor.mutable_grad() = views_[i].clone();
}

bool Gradients::is_view(std::size_t i) const {
  const Tensor& gradient = parameters_[i].tensor.grad();
  return gradient.defined() && views_[i].defined() && !gradient.is_sparse() &&
         gradient.data_ptr() == views_[i].data_ptr() && gradient.is_contiguous();
}

void Gradients::lay_out(const GradientSync& sync) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].sparse) continue;
    const bool follows = is_view(i);
    views_[i] = ::torch::from_blob(sync.gradient(i).data, parameters_[i].shape, parameters_[i].type);
    if (follows) adopt(i);
  }
}

Status Gradients::place(std::size_t i) {
  Tensor& gradient = parameters_[i].tensor.mutable_grad();
  if (is_view(i)) return {};
  if (!fits(parameters_[i], gradient)) return unfit(parameters_[i], gradient);
  ::torch::NoGradGuard none;
  views_[i].copy_(gradient);
  gradient = views_[i];
  return {};
}

Status Gradients::rows_of(std::size_t i, SparseRows& rows) const {
  const Tensor gradient = parameters_[i].tensor.grad().detach();
  if (!fits(parameters_[i], gradient) || gradient.sparse_dim() != 1) return unfit(parameters_[i], gradient);
  const Tensor indices = gradient._indices().contiguous(), values = gradient._values().contiguous();
  rows.rows.assign(indices.data_ptr<std::int64_t>(), indices.data_ptr<std::int64_t>() + indices.numel());
  const auto* bytes = static_cast<const std::byte*>(values.data_ptr());
  rows.values.assign(bytes, bytes + bytes_of(values));
  return {};
}

void Gradients::adopt(std::size_t i, const SparseRows& rows) {
  ::torch::NoGradGuard none;
  const ModelParameter& parameter = parameters_[i];
  const auto count = static_cast<std::int64_t>(rows.rows.size());
  std::vector<std::int64_t> shape = parameter.shape;
  shape[0] = count;
  Tensor indices = ::torch::empty({1, count}, ::torch::kInt64), values = ::torch::empty(shape, parameter.type);
  if (count > 0) {
    std::memcpy(indices.data_ptr(), rows.rows.data(), rows.rows.size() * sizeof(std::int64_t));
    std::memcpy(values.data_ptr(), rows.values.data(), rows.values.size());
  }
  parameter.tensor.mutable_grad() =
      ::torch::sparse_coo_tensor(indices, values, parameter.shape, ::torch::dtype(parameter.type))._coalesced_(true);
}

std::vector<bool> Gradients::reached_from(const std::vector<Tensor>& outputs) const {
  std::vector<bool> reached(parameters_.size(), false);
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> left;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) left.push_back(node);
  };
  for (const Tensor& output : outputs) visit(node_of(output));
  while (!left.empty()) {
    const Node* const node = left.back();
    left.pop_back();
    if (const auto found = by_node_.find(node); found != by_node_.end()) reached[found->second] = true;
    for (const auto& edge : node->next_edges()) visit(edge.function.get());
  }
  return reached;
}

}  // namespace gradsync::torch
