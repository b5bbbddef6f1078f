#include "torch/model.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/status.hpp"
#include "torch/tensors.hpp"

namespace gradsync::torch {
namespace {

constexpr std::size_t kBroadcastsUnderWay = 32;

bool has_sparse_weight(const ::torch::nn::Module& module) {
  if (const auto* embedding = module.as<::torch::nn::EmbeddingImpl>()) return embedding->options.sparse();
  if (const auto* bag = module.as<::torch::nn::EmbeddingBagImpl>()) return bag->options.sparse();
  return false;
}

std::unordered_set<const void*> sparse_weights(const ::torch::nn::Module& module) {
  std::unordered_set<const void*> found;
  for (const auto& part : module.modules()) {
    if (!has_sparse_weight(*part)) continue;
    for (const auto& parameter : part->parameters(false)) found.insert(parameter.unsafeGetTensorImpl());
  }
  return found;
}

// One message, in which every tensor is aligned.
void broadcast_together(Communicator& comm, const std::vector<Tensor>& tensors) {
  constexpr std::size_t alignment = 16;
  const auto room = [](const Tensor& tensor) { return (bytes_of(tensor) + alignment - 1) / alignment * alignment; };
  std::size_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += room(tensor);
  std::vector<std::byte> message(bytes);
  std::size_t at = 0;
  const auto pieces = [&](const auto& body) {
    at = 0;
    for (const Tensor& tensor : tensors) {
      body(tensor, message.data() + at);
      at += room(tensor);
    }
  };
  if (comm.rank() == 0)
    pieces([](const Tensor& tensor, std::byte* to) {
      const Tensor plain = tensor.detach().contiguous();
      if (plain.numel() > 0) std::memcpy(to, plain.data_ptr(), bytes_of(plain));
    });
  comm.broadcast(View{message.data(), message.size(), DType::u8}, 0);
  if (comm.rank() == 0) return;
  pieces([](const Tensor& tensor, std::byte* from) {
    overwrite(tensor, ::torch::from_blob(from, tensor.sizes(), tensor.scalar_type()));
  });
}

void broadcast_each(Communicator& comm, const std::vector<Tensor>& tensors) {
  for (std::size_t begin = 0; begin < tensors.size(); begin += kBroadcastsUnderWay) {
    const std::size_t end = std::min(tensors.size(), begin + kBroadcastsUnderWay);
    std::vector<Tensor> plain;
    std::vector<Work> works;
    for (std::size_t i = begin; i < end; ++i) {
      plain.push_back(tensors[i].detach().contiguous());
      works.push_back(comm.broadcast_async(view_of(plain.back()), 0));
    }
    for (Work& work : works) work.wait();
    for (std::size_t i = begin; i < end; ++i)
      if (plain[i - begin].data_ptr() != tensors[i].data_ptr()) overwrite(tensors[i], plain[i - begin]);
  }
}

struct Change {
  std::string name;
  const char* what;
};

std::optional<Change> change_of(const ModelParameter& is, const ModelParameter& was, bool may_freeze) {
  if (is.name != was.name) return Change{is.name, "added"};
  if (is.tensor.unsafeGetTensorImpl() != was.tensor.unsafeGetTensorImpl()) return Change{is.name, "replaced"};
  if (is.type != was.type || is.shape != was.shape) return Change{is.name, "changed in type or shape"};
  if (is.trained && !was.trained) return Change{is.name, "unfrozen"};
  if (!is.trained && was.trained && !may_freeze) return Change{is.name, "frozen"};
  return std::nullopt;
}

bool names(const std::vector<ModelParameter>& parameters, const std::string& name) {
  return std::any_of(parameters.begin(), parameters.end(), [&](const auto& p) { return p.name == name; });
}

std::optional<Change> first_change(const std::vector<ModelParameter>& is, const std::vector<ModelParameter>& was,
                                   bool may_freeze) {
  for (std::size_t i = 0; i < std::max(is.size(), was.size()); ++i) {
    if (i >= was.size()) return Change{is[i].name, "added"};
    if (i >= is.size() || (is[i].name != was[i].name && !names(is, was[i].name))) return Change{was[i].name, "removed"};
    if (auto change = change_of(is[i], was[i], may_freeze)) return change;
  }
  return std::nullopt;
}

}  // namespace

std::vector<ModelParameter> model_parameters(const ::torch::nn::Module& module,
                                             const std::vector<std::string>& sparse_names) {
  const std::unordered_set<const void*> sparse = sparse_weights(module);
  std::unordered_set<const void*> seen;
  std::vector<ModelParameter> all;
  for (const auto& item : module.named_parameters()) {
    const Tensor& tensor = item.value();
    if (!tensor.defined() || !seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
    const bool is_sparse = sparse.contains(tensor.unsafeGetTensorImpl()) ||
                           std::find(sparse_names.begin(), sparse_names.end(), item.key()) != sparse_names.end();
    all.push_back({item.key(), tensor, tensor.requires_grad(), is_sparse, tensor.sizes().vec(), tensor.scalar_type()});
  }
  return all;
}

Status check_trainable(const std::vector<ModelParameter>& parameters) {
  for (const ModelParameter& parameter : parameters) {
    require_dense_on_cpu("parameter " + parameter.name, parameter.tensor);
    const std::optional<DType> dtype = dtype_of(parameter.type);
    if (parameter.trained && !(dtype && is_floating(*dtype)))
      return failure(ErrorCode::unsupported, "parameter {} is of type {}, expected f16, bf16, f32 or f64",
                     parameter.name, ::c10::toString(parameter.type));
  }
  return {};
}

Status check_unchanged(const ::torch::nn::Module& module, const std::vector<ModelParameter>& was, bool may_freeze) {
  std::size_t next = 0;
  bool same = true;
  for (const Tensor& tensor : module.parameters()) {  // tied weights stand here several times: then the slow way tells
    same = same && next < was.size() && tensor.unsafeGetTensorImpl() == was[next].tensor.unsafeGetTensorImpl() &&
           tensor.requires_grad() == was[next].trained && tensor.scalar_type() == was[next].type &&
           tensor.sizes() == ::torch::IntArrayRef(was[next].shape);
    ++next;
  }
  if (same && next == was.size()) return {};
  const auto change = first_change(model_parameters(module, {}), was, may_freeze);
  if (!change) return {};
  return failure(ErrorCode::invalid_argument, "parameter {} was {} after wrapping: call rewrap() on every rank",
                 change->name, change->what);
}

std::vector<Tensor> model_buffers(const ::torch::nn::Module& module) {
  std::vector<Tensor> all;
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) all.push_back(item.value());
  return all;
}

std::vector<Parameter> described_buffers(const ::torch::nn::Module& module) {
  std::vector<Parameter> all;
  for (const auto& item : module.named_buffers()) {
    if (!item.value().defined()) continue;
    require_dense_on_cpu("buffer " + item.key(), item.value());
    all.push_back(parameter_of(item.key(), item.value()));
  }
  return all;
}

void broadcast_tensors(Communicator& comm, const std::vector<Tensor>& tensors, bool coalesce) {
  if (comm.size() == 1 || tensors.empty()) return;
  if (coalesce) broadcast_together(comm, tensors);
  else broadcast_each(comm, tensors);
}

}  // namespace gradsync::torch
