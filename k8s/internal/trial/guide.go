package trial

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const guidePage = "docs/guide/kubernetes.md"

var shellBlock = regexp.MustCompile("(?s)(<!-- not typed: [^>]*-->\n)?```sh\n(.*?)\n```")

// commandsOf are those of a section of the page that no word leaves out.
func commandsOf(page, section string) []string {
	_, after, _ := strings.Cut(page, "\n## "+section+"\n")
	body, _, _ := strings.Cut(after, "\n## ")
	var found []string
	for _, block := range shellBlock.FindAllStringSubmatch(body, -1) {
		if block[1] == "" {
			found = append(found, block[2])
		}
	}
	return found
}

// typeGuide types the commands of a section of the guide, as the administrator, in the repository.
func (c *Cluster) typeGuide(ctx context.Context, section string) error {
	root := filepath.Dir(c.Source)
	page, err := os.ReadFile(filepath.Join(root, guidePage))
	if err != nil {
		return err
	}
	commands := commandsOf(string(page), section)
	if len(commands) == 0 {
		return fmt.Errorf("%s has nothing to type in %q", guidePage, section)
	}
	for _, text := range commands {
		shell := exec.CommandContext(ctx, "sh", "-euc", text)
		shell.Dir = root
		shell.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "PATH="+c.Programs+":"+os.Getenv("PATH"))
		var said bytes.Buffer
		shell.Stdout, shell.Stderr = &said, &said
		if err := shell.Run(); err != nil {
			return fmt.Errorf("%s, %q:\n%s\n%w: %s", guidePage, section, text, err, said.String())
		}
	}
	return nil
}

// guided: the example of the guide gets its place, and the host describes it as the page says.
func (c *Cluster) guided(ctx context.Context, on *node) (Check, error) {
	check := Check{What: "The guide's commands place its example, and the host holds 4 ms of every 10 ms for it"}
	if err := c.typeGuide(ctx, "Claim"); err != nil {
		check.Found = err.Error()
		return check, nil
	}
	pod, err := c.admin.CoreV1().Pods(tenant).Get(ctx, "voice", metav1.GetOptions{})
	if err != nil {
		return check, err
	}
	pods := []corev1.Pod{*pod}
	started, err := on.start(ctx, pods)
	if err != nil {
		return check, err
	}
	capacity, err := on.engine().Capacity(ctx)
	if err != nil {
		return check, err
	}
	if len(capacity.Held) == 1 {
		held := capacity.Held[0]
		check.Holds = started == 1 && held.BudgetNs == 4_000_000 && held.PeriodNs == 10_000_000
		check.Found = fmt.Sprintf("the host holds %d ns of every %d ns for %s", held.BudgetNs, held.PeriodNs, held.VM)
	}
	if err := on.end(ctx, pods); err != nil {
		return check, err
	}
	return check, c.remove(ctx, pods)
}
