// Whether replicas are the same, to the bit.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "gradsync/communicator.hpp"

namespace training {

// SHA-256, in hexadecimal, of every parameter and buffer: name, type, shape and bytes, in the module's order.
std::string fingerprint(const torch::nn::Module& module);

struct ReplicaCheck {
  std::vector<std::string> fingerprints;  // of each rank
  bool identical() const;
  std::string describe() const;  // "replicas identical: yes (<hash>)", or no and which rank differs from rank 0
};

// Collective.
ReplicaCheck compare_replicas(const torch::nn::Module& module, gradsync::Communicator& comm);

}  // namespace training
