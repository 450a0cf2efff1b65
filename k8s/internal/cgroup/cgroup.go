// Package cgroup finds the cgroup of a pod. kubelet makes it before it prepares the pod's claims.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Root is where cgroups of version 2 are.
const Root = "/sys/fs/cgroup"

// Pods are below a slice or two, of kubelet and of their class of service.
const deepest = 6

// OfPod gives the path of a pod's cgroup below root, as /proc/PID/cgroup has it. kubelet names it after the pod's UID,
// for systemd with its dashes replaced.
func OfPod(root, uid string) (string, error) {
	names := []string{"pod" + uid, "-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"}
	found := ""
	err := fs.WalkDir(os.DirFS(root), ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && errors.Is(err, fs.ErrNotExist):
			// One that has just ended.
			return fs.SkipDir
		case err != nil:
			return err
		case !entry.IsDir():
			return nil
		case path.Base(at) == names[0] || strings.HasSuffix(at, names[1]):
			found = "/" + at
			return fs.SkipAll
		case strings.Count(at, "/") >= deepest-1:
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("look for the cgroup of pod %s in %s: %w", uid, root, err)
	}
	if found == "" {
		return "", fmt.Errorf("no cgroup of pod %s is below %s: kubelet has to run with cgroups per pod and version 2 of cgroups, "+
			"and this driver has to see the host's", uid, root)
	}
	return found, nil
}
