// The communicators of a GradientSync: lanes for buckets, one for what the ranks must agree on, one for rows of sparse
// gradients. All hold all ranks; making them moves no byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradsync/communicator.hpp"

namespace gradsync {

class Lanes {
 public:
  Lanes() = default;
  explicit Lanes(Communicator& comm);  // with control() only
  // Where all ranks are known to ask for the same.
  void open(Communicator& comm, std::uint32_t lanes, bool sparse);

  // Item k goes on lane k % lanes.
  Communicator& of(std::uint32_t item) { return lanes_[item % lanes_.size()]; }
  Communicator& control() { return control_; }
  Communicator& sparse() { return sparse_; }

  // Something has failed with `first`. Gives the other lanes a moment to find the same failure by themselves, then ends
  // them all. Returns the cause that is founded best: another rank's word that it gave up says the least.
  Status end(const Status& first);
  void destroy();

 private:
  std::vector<Communicator*> all();

  std::vector<Communicator> lanes_;
  Communicator control_, sparse_;
};

}  // namespace gradsync
