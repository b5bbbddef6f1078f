// The processes that descend from this one, seen through /proc.
#pragma once

#include <sys/types.h>

#include <set>
#include <vector>

#include "base/clock.hpp"

namespace gradsync::cli {

// Living descendants of this process, children before grandchildren. Subtrees below a process in `except` are left out.
// Zombies are left out but their children are not.
std::vector<pid_t> living_descendants(const std::set<pid_t>& except = {});

// This process's children, zombies too.
std::set<pid_t> children();

// SIGKILLs and reaps every descendant that is not below one of `except`, also those that appear meanwhile. Returns
// whether none is left. Requires PR_SET_CHILD_SUBREAPER for those that leave their parent.
bool end_descendants(const std::set<pid_t>& except, Deadline deadline);

// A pidfd, or -1 if there is no such process.
int open_process(pid_t pid);

// While it lives, orphaned descendants become children of this process instead of init's.
class Subreaper {
 public:
  Subreaper();
  ~Subreaper();
  Subreaper(const Subreaper&) = delete;
  Subreaper& operator=(const Subreaper&) = delete;

 private:
  int before_ = 0;
};

}  // namespace gradsync::cli
