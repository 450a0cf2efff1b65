package trial

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"steadyvm/k8s/internal/dropin"
)

func (n *node) description(claim *resourceapi.ResourceClaim) (string, error) {
	own := dropin.Claim{Namespace: claim.Namespace, Name: claim.Name, UID: string(claim.UID)}
	text, err := os.ReadFile(filepath.Join(n.descriptions(), own.File()))
	return string(text), err
}

// all files of the directory, by name.
func (n *node) texts() (map[string]string, error) {
	texts := map[string]string{}
	files, err := dropin.Files(n.descriptions())
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(n.descriptions(), file))
		if err != nil {
			return nil, err
		}
		texts[file] = string(text)
	}
	return texts, nil
}

// outlives: a killed driver leaves what it did, takes it up again, and forgets the claim that went meanwhile.
func (n *node) outlives(ctx context.Context, placed []corev1.Pod) (Check, error) {
	check := Check{What: "A killed driver leaves files and slices, takes both up again, and forgets a pod that went meanwhile"}
	before, err := n.texts()
	if err != nil {
		return check, err
	}
	if err := n.driver.kill(); err != nil {
		return check, err
	}
	slices, err := n.slices(ctx)
	if err != nil {
		return check, err
	}
	gone, stay := placed[0], placed[1:]
	claim, err := n.cluster.claimOf(ctx, gone)
	if err != nil {
		return check, err
	}
	if err := n.cluster.remove(ctx, []corev1.Pod{gone}); err != nil {
		return check, err
	}
	if err := n.startDriver(ctx); err != nil {
		return check, err
	}
	delete(before, dropin.Claim{UID: string(claim.UID)}.File())
	changed := 0
	for _, pod := range stay {
		claim, err := n.cluster.claimOf(ctx, pod)
		if err != nil {
			return check, err
		}
		if err := n.prepare(ctx, claim); err != nil {
			return check, err
		}
	}
	after, err := n.texts()
	if err != nil {
		return check, err
	}
	for file, text := range before {
		if after[file] != text {
			changed++
		}
	}
	counted, err := n.metric(ctx, "steadyvm_dra_prepared_claims")
	if err != nil {
		return check, err
	}
	check.Holds = len(slices) > 0 && changed == 0 && len(after) == len(stay) && counted == fmt.Sprint(len(stay))
	check.Found = fmt.Sprintf("%d slices while it was dead; %d of %d files left, %d changed; its metrics count %s",
		len(slices), len(after), len(placed), changed, counted)
	return check, nil
}

// forgets: unprepared twice, as kubelet may, leaves nothing.
func (n *node) forgets(ctx context.Context, placed []corev1.Pod) (Check, error) {
	check := Check{What: "Unprepared claims leave nothing, also where kubelet asks twice"}
	for _, pod := range placed {
		claim, err := n.cluster.claimOf(ctx, pod)
		if err != nil {
			return check, err
		}
		for range 2 {
			if err := n.unprepare(ctx, claim); err != nil {
				return check, err
			}
		}
	}
	after, err := n.texts()
	if err != nil {
		return check, err
	}
	capacity, err := n.engine().Capacity(ctx)
	if err != nil {
		return check, err
	}
	check.Holds = len(after) == 0 && len(capacity.Held) == 0
	check.Found = fmt.Sprintf("%d files; the host holds %d", len(after), len(capacity.Held))
	return check, nil
}

// reboots: a node's boot clears /run; kubelet then prepares all claims again.
func (n *node) reboots(ctx context.Context, placed []corev1.Pod) (Check, error) {
	check := Check{What: "After a boot, which clears /run, kubelet's calls describe the same VMs again"}
	before, err := n.texts()
	if err != nil {
		return check, err
	}
	if err := n.driver.kill(); err != nil {
		return check, err
	}
	if err := os.RemoveAll(n.descriptions()); err != nil {
		return check, err
	}
	if err := n.startDriver(ctx); err != nil {
		return check, err
	}
	for _, pod := range placed {
		claim, err := n.cluster.claimOf(ctx, pod)
		if err != nil {
			return check, err
		}
		if err := n.prepare(ctx, claim); err != nil {
			return check, err
		}
	}
	after, err := n.texts()
	if err != nil {
		return check, err
	}
	same := 0
	for file, text := range before {
		if after[file] == text {
			same++
		}
	}
	check.Holds = same == len(before) && len(after) == len(before) && same > 0
	check.Found = fmt.Sprintf("%d of %d files are the same", same, len(before))
	return check, nil
}

func (n *node) metric(ctx context.Context, name string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.listen+"/metrics", nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return value, nil
		}
	}
	return "", fmt.Errorf("/metrics has no %s", name)
}
